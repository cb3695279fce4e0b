"""Every baseline fuzzer for the same time on one net: what it finds, each failure checked by plain torch.

    python benchmarks/baselines.py lenet5@m.safetensors --data mnist --with lenet4@m4.safetensors --seconds 20

The check shares no code with the recipes: the net itself, one input at a time, and the recipe's own bound from the
stored columns. A failure that does not hold is counted under "bad"; the command then ends with 1.
"""

import argparse
import sys
from collections.abc import Sequence

import torch
from torch import Tensor, nn

import assay
from assay.core.cases import Cases
from assay.subjects.sources.load import module_of

RECIPES = ("noise", "robot", "deepxplore", "deepxplore-alone", "dlfuzz", "adapt", "deephunter", "tensorfuzz")


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    target = assay.load_target(args.model, device=args.device)
    others = [assay.load_target(text, device=args.device) for text in args.siblings]
    nets = [module_of(net).eval() for net in (target, *others)]
    print(f"{args.model}, {args.data}, {args.seconds:g} s each, {target.device}, {torch.get_num_threads()} threads")
    print("recipe            cases/s  failures  distinct  broken  target wrong  rel. L2 (median, max)  checked  bad")
    bad = 0
    for recipe in args.recipes:
        siblings = others if recipe == "deepxplore" else []
        if recipe == "deepxplore" and not others:
            continue
        found = assay.fuzz(
            recipe, target, args.data, time=args.seconds, run=f"baseline-{recipe}", fresh=True, siblings=siblings
        )
        rate = found.cases / found.seconds
        told = f"{recipe:17} {rate:8.0f} {found.failures:9} {found.distinct:9} {found.broken:7} {found.wrong:13}"
        if not found.failures:
            print(told)
            continue
        cases = found.load()
        away = (cases.x - cases.info["seed_x"]).flatten(1).norm(dim=1) / cases.info["seed_x"].flatten(1).norm(dim=1)
        rows = torch.randperm(len(cases), generator=torch.Generator().manual_seed(0))[: args.check]
        wrong = sum(not holds(recipe, nets, cases[row : row + 1]) for row in rows.tolist())
        bad += wrong
        print(f"{told} {float(away.median()):10.2f} {float(away.max()):11.2f} {len(rows):8} {wrong:4}", flush=True)
    return int(bad > 0)


def holds(recipe: str, nets: list[nn.Module], case: Cases) -> bool:
    """Whether one stored failure is what its recipe says it is."""
    device = next(nets[0].parameters()).device
    x, seed = case.x, case.info["seed_x"]
    with torch.no_grad():
        said = [int(net(x.to(device)).argmax()) for net in nets]
        of_seed = [int(net(seed.to(device)).argmax()) for net in nets]
    fine = bool(((x >= 0) & (x <= 1)).all()) and said[0] == int(case.info["pred"])
    if recipe == "deepxplore":
        return fine and len(set(said)) > 1 and len(set(of_seed)) == 1 and _even_light(x, seed)
    if recipe == "tensorfuzz":
        return fine  # that its net differs in half precision is what tests/unit/stages/test_quantised.py checks
    fine = fine and said[0] != int(case.y) and of_seed[0] == int(case.y)
    change = (x - seed).flatten()
    if recipe in ("robot", "adapt", "deepxplore-alone"):
        return fine and float(change.norm()) <= 0.5 * float(seed.norm()) * (1 + 1e-4)
    if recipe == "noise":
        return fine and float(change.abs().max()) <= 0.1 + 1e-6
    if recipe == "deephunter":
        moved = (x - case.info["line_ref"]).flatten().abs()
        few = int((moved > 0.5 / 255).sum()) + int(case.info["line_l0"]) < 0.02 * moved.numel()
        return fine and (few or max(float(moved.max()), float(case.info["line_linf"])) < 0.2)
    return fine


def _even_light(x: Tensor, seed: Tensor) -> bool:
    """Whether the case is the seed in one other light, at most half of the range away."""
    change = (x - seed).flatten()
    light = float(change[change.abs().argmax()])
    return abs(light) <= 0.5 + 1e-5 and torch.allclose(x, (seed + light).clamp(0, 1), atol=1e-4)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--with", dest="siblings", action="append", default=[], help="a sibling for deepxplore")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--check", type=int, default=500, help="failures of each recipe that are checked")
    parser.add_argument("--device", default="auto")
    return parser


if __name__ == "__main__":
    sys.exit(main())
