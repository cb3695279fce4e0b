"""Suite ``autoattack`` against pyautoattack, the packaged port of the original, on the same weights and images.

    python benchmarks/autoattack.py lenet5@mnist.safetensors --data 'mnist/test[:1000]' --eps 0.1
    python benchmarks/autoattack.py resnet18@c.safetensors --data cifar10/test --eps 8/255 --memory

Prints both robust accuracies and seconds. Exit 1 where ours leaves more than one image in 200 standing that the peer
broke, net. With ``--memory``, ours alone, and the memory in use after each block: exit 1 where the last quarter of the
blocks uses over 5 % more than the second quarter.
"""

import argparse
import resource
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.core.allocator import keep_blocks
from assay.core.units import number
from assay.engines.evaluate import evaluate
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target, module_of

PEER_NORM = {"linf": "Linf", "l2": "L2"}


def peer_standing(net: torch.nn.Module, x: Tensor, y: Tensor, eps: float, norm: str, batch: int) -> Tensor:
    """Which images are still right after pyautoattack's standard version."""
    from pyautoattack import AutoAttack

    attack = AutoAttack(net, norm=PEER_NORM[norm], eps=eps, version="standard", device=str(x.device))
    made, _ = attack.run_standard_evaluation(x, y, batch_size=batch)
    with torch.no_grad():
        return torch.cat([net(part).argmax(1) for part in made.split(256)]) == y


def in_use(device: torch.device) -> float:
    """MiB in use now: on the GPU what torch holds, else the resident set of this process."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device) / 2**20
    with open("/proc/self/statm") as file:  # noqa: PTH123  not a file to speak of
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def _how(args: argparse.Namespace) -> dict[str, Any]:
    return {"suite": "autoattack", "eps": args.eps, "norm": args.norm, "batch": args.batch, "amp": args.amp}


def memory(args: argparse.Namespace) -> int:
    target = load_target(args.model, device=args.device)
    used: list[float] = []
    began = time.perf_counter()

    def note(numbers: Mapping[str, Any]) -> None:
        if not numbers.get("attack"):
            used.append(in_use(target.device))
            print(
                f"{numbers['done']:6} of {numbers['of']}  {time.perf_counter() - began:7.1f} s  {used[-1]:9.1f} MiB",
                flush=True,
            )

    result = evaluate(target, args.data, **_how(args), progress=note)
    quarter = max(1, len(used) // 4)
    early, late = max(used[quarter : 2 * quarter] or used), max(used[-quarter:])
    print(f"\n{result}\nMiB in use after a block: second quarter at most {early:.1f}, last quarter {late:.1f}")
    if target.device.type == "cuda":
        print(f"peak {torch.cuda.max_memory_allocated(target.device) / 2**20:.0f} MiB")
    return int(late > 1.05 * early)


def agreement(args: argparse.Namespace) -> int:
    target = load_target(args.model, device=args.device)
    data = load_data(args.data)
    target(data.cases.x[:8].to(target.device))  # what libraries load with the first call is nobody's time
    began = time.perf_counter()
    result = evaluate(target, data, **_how(args), save=args.save)
    ours = time.perf_counter() - began
    n, left = result.worst.n, result.worst.right
    print(
        f"\n{args.model} on {data.name}, {args.norm} eps {args.eps}, n={n}, {target.device}, torch {torch.__version__}"
    )
    for name, outcome in result.attacks.items():
        told = f"{outcome.tried:6} tried {outcome.broken:6} broken {outcome.effort.seconds:9.1f} s"
        print(f"  {name:10} {told}")
    attacks = sum(outcome.effort.seconds for outcome in result.attacks.values())
    print(f"  attacks together {attacks:.1f} s")
    print(f"clean {result.clean.right}/{n}; warnings: {', '.join(w['name'] for w in result.warnings) or 'none'}")
    print(f"robust: assay {left}/{n} in {ours:.1f} s, trust checks included", flush=True)
    if args.alone:
        return 0
    cases = data.cases.to(target.device)
    with target.ready():
        began = time.perf_counter()
        held = peer_standing(module_of(target), cases.x, cases.y, number(args.eps), args.norm, args.peer_batch)
        theirs = time.perf_counter() - began
    peer = int(held.sum())
    print(f"robust: pyautoattack {peer}/{n} in {theirs:.1f} s, batches of {args.peer_batch}")
    print(f"difference {left - peer:+d} (may be at most +{n // 200}), time ratio {ours / theirs:.2f}")
    return int(left - peer > n // 200)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--eps", required=True)
    parser.add_argument("--norm", default="linf")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=lambda text: text if text == "auto" else int(text), default="auto")
    parser.add_argument("--peer-batch", type=int, default=500)
    parser.add_argument("--amp", action="store_true", help="ours in bfloat16 where no gradient is taken")
    parser.add_argument("--save", default=None)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--alone", action="store_true", help="ours, and not the peer")
    args = parser.parse_args()
    keep_blocks()
    return memory(args) if args.memory else agreement(args)


if __name__ == "__main__":
    sys.exit(main())
