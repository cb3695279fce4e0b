"""Can mutants of a stand-in tell more than the stand-in itself? Average FDR of orders made of their answers.

    python benchmarks/mutant_orders.py resnet20@w.safetensors --data fashion-mnist --eps 0.1 --images 2000 --seeds 0 1 2

The pool: test images under FGSM, each change times a share drawn from [0, 1), failed attacks kept. Beside LBT's two
scores (ms, lcr) stand the stand-in's own Gini (the control), that of the mean of all mutants' probabilities (mixture),
the mean of the mutants' Ginis, and sums of ranks; with labels as answers, and with probabilities (soft).
"""

import argparse
import statistics
from collections.abc import Mapping

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.randomness import Stream
from assay.engines.ranking_measures import measured
from assay.stages.imitation import Extraction
from assay.stages.scores.gini import impurity
from assay.stages.selectors.lbt import Plan, family_of
from assay.stages.stand_in import StandIn, stand_in
from assay.subjects.asked import Asked
from assay.subjects.bench import Bench
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target, answer

BUDGETS = (0.05, 0.1, 0.2, 0.3, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--eps", type=float, default=0.1)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--tau", type=float, default=0.9)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    test, training = load_data(f"{args.data}/test[:{args.images}]"), load_data(f"{args.data}/train")
    target = load_target(args.model, data=test, device=args.device)
    x, wrong = attacked(target, test.cases, args.eps)
    print(f"{args.model}, {len(x)} images of {test.name}, {float(wrong.double().mean()):.1%} wrong")
    for soft in (False, True):
        reached: dict[str, list[float]] = {}
        for seed in args.seeds:
            bench = Bench(Asked(target, labels=not soft), training=training)
            subject = stand_in(bench, Extraction(tau=args.tau, soft=soft), Stream(seed, ("lbt",)), x)
            for name, score in scores_of(bench, subject, x, args.mutants, seed).items():
                order = score.argsort(descending=True, stable=True)
                rates = [measured(wrong[order], round(part * len(x))).rate for part in BUDGETS]
                reached.setdefault(name, []).append(statistics.fmean(rate for rate in rates if rate is not None))
        print(f"\n{'probabilities' if soft else 'labels'}: average FDR, mean and spread over {len(args.seeds)} seeds")
        for name, values in reached.items():
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            print(f"  {name:<22} {statistics.fmean(values):.4f} ± {spread:.4f}", flush=True)


def attacked(target: Target, cases: Cases, eps: float) -> tuple[Tensor, Tensor]:
    """The pool, and which of it the model gets wrong."""
    share = torch.rand(len(cases), 1, 1, 1, generator=torch.Generator().manual_seed(0))
    moved = []
    for x, y, part in zip(cases.x.split(256), cases.y.split(256), share.split(256), strict=True):
        here = x.to(target.device).requires_grad_()
        loss = torch.nn.functional.cross_entropy(target(here), y.to(target.device), reduction="sum")
        moved.append((x + eps * part * torch.autograd.grad(loss, here)[0].sign().cpu()).clamp(0, 1))
    pool = torch.cat(moved)
    return pool, answer(target, pool, Bench(target).chunks).argmax(1).cpu() != cases.y


def scores_of(bench: Bench, subject: StandIn, x: Tensor, mutants: int, seed: int) -> Mapping[str, Tensor]:
    """The scores of the pool, (n,) each."""
    plan = Plan(mutants, ("gf", "nai", "ns"), 0.05, values=False)
    family = family_of(subject, plan, Stream(seed, ("lbt",)), bench)
    own = answer(subject.target, x, bench.chunks).cpu().softmax(1)
    total, distance, changes, ginis = own.clone(), own.new_zeros(len(x)), own.new_zeros(len(x)), own.new_zeros(len(x))
    for i in range(len(family.mutants)):
        with family.mutants.applied(i):
            scores = answer(subject.target, x, bench.chunks).cpu()
        p = scores.softmax(1)
        total += p
        distance += 0.5 * (p - own).abs().sum(1)
        changes += p.argmax(1) != own.argmax(1)
        ginis += impurity(scores)
    control = impurity(own.log())
    return {
        "gini (control)": control,
        "ms": distance,
        "lcr, then ms": changes + distance / (10 * mutants),
        "gini of the mixture": impurity((total / total.sum(1, keepdim=True)).log()),
        "mean of ginis": ginis,
        "ranks of gini + ms": _ranks(control) + _ranks(distance),
        "ranks of gini + lcr": _ranks(control) + _ranks(changes + distance / (10 * mutants)),
    }


def _ranks(score: Tensor) -> Tensor:
    return score.argsort().argsort().double()


if __name__ == "__main__":
    main()
