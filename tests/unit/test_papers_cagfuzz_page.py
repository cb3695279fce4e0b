"""CAGFuzz's page: differences by hand, which rows may stand on it, sentences that follow the rows."""

import math
from pathlib import Path
from typing import Any

import pytest

from papers.cagfuzz_page import missing, write_page
from papers.cagfuzz_rq3 import LEARNED
from papers.cagfuzz_tables import Gap, gap, over_models, usual
from papers.cagfuzz_verdict import errors, learned, retrained, transferred
from papers.rows import Row

MODELS = ("lenet1", "lenet4", "lenet5")


def row(experiment: str, seed: int, model: str = "lenet5", **more: Any) -> Row:
    names = ("arm", "tool", "terms", "images", "small")
    protocol = {"experiment": experiment, "data": "mnist", "model": model, "seed": seed}
    protocol |= {name: more.pop(name) for name in names if name in more}
    return {"protocol": protocol, "numbers": {"machine": "CPU", **more}}


def rq1(values: dict[str, float]) -> list[Row]:
    """Accuracy by arm for all models and three seeds, which lift all arms alike but for a little."""
    return [
        row("rq1", seed, model, arm=arm, whole=value + 0.1 * seed + (0.001 * seed if arm == "cagfuzz" else 0), tests=7)
        for seed in range(3)
        for model in MODELS
        for arm, value in values.items()
    ]


def rq2(counts: dict[str, tuple[int, int]]) -> list[Row]:
    same = {"terms": "equal", "images": 2000, "tests": 1990, "witness": 0.9, "clean_witness": 0.99, "more": 0.5}
    return [
        row("rq2", seed, model, tool=tool, errors=n + seed, held=held, **same)
        for seed in range(3)
        for model in MODELS
        for tool, (n, held) in counts.items()
    ]


def test_a_gap_is_of_pairs_and_its_interval_students() -> None:
    told = gap({0: 0.50, 1: 0.62, 2: 0.73, 3: 9.0}, {0: 0.40, 1: 0.50, 2: 0.60})
    assert told.mean == pytest.approx((0.10 + 0.12 + 0.13) / 3)
    spread = math.sqrt(sum((v - told.mean) ** 2 for v in (0.10, 0.12, 0.13)) / 2)
    assert told.half == pytest.approx(4.303 * spread / math.sqrt(3), rel=1e-6)
    assert told.word == "more"
    assert Gap((0.1, -0.2, 0.05)).word == "level"
    assert Gap((-0.1, -0.1, -0.1)).word == "less"
    assert Gap((0.1,)).word == "–"
    assert Gap((0.1,)).text() == "+10.00 (one seed)"


def test_means_over_models_need_all_models() -> None:
    rows = [row("rq1", s, m, arm="twice", whole=0.1 * i) for s in (0, 1) for i, m in enumerate(MODELS)]
    assert over_models(rows[:-1], "whole", arm="twice") == {0: pytest.approx(0.1)}


def test_trials_and_rows_of_another_net_are_left_out() -> None:
    kept = [row("rq3", 0, arm=arm, clean=0.5, fingerprint="a") for arm in ("before", "plain")]
    other = row("rq3", 0, arm="twice", clean=0.5, fingerprint="b")
    trial = row("rq3", 0, arm="noise", clean=0.5, fingerprint="a", small=True)
    again = row("rq3", 0, arm="plain", clean=0.6, fingerprint="a")
    assert usual([*kept, other, trial, again]) == [kept[0], again]


def test_transfer_is_between_models() -> None:
    rows = [
        row("rq1", 0, model, arm=f"fgsm-{maker}", whole=0.9 if maker == model else 0.3)
        for model in MODELS
        for maker in MODELS
    ]
    assert transferred(rows, same=True) == {0: pytest.approx(0.9)}
    assert transferred(rows, same=False) == {0: pytest.approx(0.3)}
    assert transferred(rows[:-1], same=True) == {}, "one model is missing"


def test_answers_of_rq1_follow_the_rows() -> None:
    (told,) = learned(rq1({"original": 0.3, "twice": 0.4, "noise": 0.5, "cagfuzz": 0.45}))
    assert "the images shown twice: yes, +5.10" in told
    assert "noise as long: no, less, -4.90" in told
    assert "FGSM" not in told, "there are no rows of it"


def test_answers_of_rq2_name_what_is_held() -> None:
    (told,) = errors(rq2({"cagfuzz": (500, 20), "noise": (100, 90), "deephunter": (700, 300)}))
    assert "DeepHunter 701 (300 held), CAGFuzz 501 (20 held), noise, as long 101 (90 held)" in told
    assert "noise, as long: errors more (+400 [+400, +400]), held less (-70 [-70, -70])" in told
    assert "The witness gives 90.0 % of CAGFuzz's tests their label, and 99.0 % of the images" in told


def test_answers_of_rq3_stand_beside_the_controls() -> None:
    rows = [
        row("rq3", seed, m, arm=arm, clean=value, mixed=value, fresh=0.5, static=dict.fromkeys(LEARNED, 0.5))
        for seed in range(2)
        for m in MODELS
        for arm, value in (("before", 0.97), ("plain", 0.98), ("cagfuzz", 0.96))
    ]
    (told,) = retrained(rows)
    assert "clean test set 96.0 ± 0.0 %, against before -1.00 [-1.00, -1.00], plain -2.00" in told


def test_the_page_says_what_is_missing(tmp_path: Path) -> None:
    write_page([], tmp_path)
    empty = (tmp_path / "cagfuzz.md").read_text()
    assert "nothing is said" in empty
    assert "cagfuzz.py rq2 --data cifar10 --models vgg19`: everything: all" in empty
    rows = rq1({"original": 0.3, "twice": 0.4, "noise": 0.5, "cagfuzz": 0.45}) + rq2({"cagfuzz": (500, 20)})
    write_page(rows, tmp_path)
    page = (tmp_path / "cagfuzz.md").read_text()
    assert "| LeNet-5, paper | 60.6 |" in page
    assert "| CAGFuzz | 1990 ± 0 | 501 ± 1 |" in page
    assert "894 |" in page
    assert "original, twice, noise, cagfuzz: 3 and 4; fgsm-lenet1" in missing(rows)
