"""The outer loop itself: `assay harden` with a recipe, round after round, on both columns.

    python benchmarks/papers/outer_loop.py --data mnist fashion-mnist --seeds 0 1 2 --rows outer.jsonl
    python benchmarks/papers/outer_loop.py --rows outer.jsonl --table

Every recipe has the same rounds, picks, epochs and eps; the requirement cannot be met, so that all rounds run. The
control is the same training without cases. Rows are appended and never computed twice; the table is made from them.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from assay.engines.harden import harden
from assay.engines.train import train

ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "robot": ("robot", {}),
    "robot in the ball": ("robot", {}),
    "renew": ("renew", {}),
    "renew, random picks": ("renew", {"changes": {"select": "random"}}),
}
EPS = 0.1
EPOCHS = 2


def row(args: argparse.Namespace, data: str, arm: str, seed: int) -> dict[str, Any]:
    """One run of the loop, measured on the test part."""
    weights = args.work / f"{data}-{seed}.safetensors"
    train("lenet5", data, weights, params={"epochs": 5}, seed=seed, device=args.device)
    recipe, given = ARMS[arm]
    given = dict(given)
    free = arm == "robot"  # the recipe's own distance, no ball: eps is for measuring only
    changes = {"train": f"plain(epochs={EPOCHS}, schedule=constant)", **given.pop("changes", {})}
    if free:
        changes |= {"mutate.eps": None, "valid.within.eps": None, "objective.fol.eps": None, "score.fol.eps": None}
        changes |= {"objective.fol.norm": "l2", "score.fol.norm": "l2"}
    told = harden(
        recipe,
        f"lenet5@{weights}",
        data,
        until="pgd>=1",
        eps=EPS,
        rounds=args.rounds,
        per_round=args.per_round,
        fuzz_time=args.fuzz_time,
        val_cases=500,
        test_cases=args.test_cases,
        seed=seed,
        control=arm == "robot",
        changes=changes,
        device=args.device,
        run=f"{args.name}-{data}-{seed}-{arm.replace(' ', '-').replace(',', '')}",
        **given,
    )
    tested = told.to_json()
    numbers = {
        name: {
            "clean": tested[name]["clean"]["accuracy"],
            "white": tested[name]["attacks"]["pgd"]["accuracy"],
            "static": tested[name]["static"]["attacks"]["pgd"]["accuracy"],
        }
        for name in ("before", "control", "after")
        if tested[name] is not None
    }
    rounds = [
        {k: r[k] for k in ("round", "found", "selected", "fixed", "checked", "broken", "numbers")}
        for r in tested["rounds"]
    ]
    return {"data": data, "arm": arm, "seed": seed, "eps": EPS, "best": told.best, "numbers": numbers, "rounds": rounds}


def table(rows: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over seeds, white box and static apart."""
    lines = [
        "| data | arm | seeds | white-box PGD | static PGD | clean | cases learned |",
        "|---|---|---|---|---|---|---|",
    ]
    for data in sorted({r["data"] for r in rows}):
        mine = [r for r in rows if r["data"] == data]
        some = [r for r in mine if r["arm"] == "robot"]
        lines.append(_line(data, "before", [r["numbers"]["before"] for r in some], None))
        lines.append(_line(data, "control: no cases", [r["numbers"]["control"] for r in some], None))
        for arm in ARMS:
            arms = [r for r in mine if r["arm"] == arm]
            picked = [sum(x["selected"] for x in r["rounds"]) for r in arms]
            lines.append(_line(data, arm, [r["numbers"]["after"] for r in arms], picked))
    return "\n".join(line for line in lines if line)


def _line(data: str, arm: str, numbers: list[dict[str, float]], picked: list[int] | None) -> str:
    if not numbers:
        return ""
    cells = []
    for name in ("white", "static", "clean"):
        values = [n[name] for n in numbers]
        spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.3f}{spread}")
    count = "" if picked is None else f"{statistics.mean(picked):.0f}"
    return f"| {data} | {arm} | {len(numbers)} | {' | '.join(cells)} | {count} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["mnist", "fashion-mnist"])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--per-round", type=int, default=2200)
    parser.add_argument("--fuzz-time", default="20s")
    parser.add_argument("--test-cases", type=int, default=2000)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("weights"))
    parser.add_argument("--name", default="outer")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--table", action="store_true", help="only print the table of the rows that are there")
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.rows.read_text().splitlines()] if args.rows.exists() else []
    have = {(r["data"], r["arm"], r["seed"]) for r in rows}
    for seed in args.seeds if not args.table else []:
        for data in args.data:
            for arm in args.arms:
                if (data, arm, seed) not in have:
                    rows.append(row(args, data, arm, seed))
                    with args.rows.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
                    print(json.dumps(rows[-1]["numbers"]), data, arm, seed, flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
