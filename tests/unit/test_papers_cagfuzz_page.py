"""CAGFuzz's page: differences by hand, which rows may stand on it, sentences that follow the rows."""

import math
from pathlib import Path
from typing import Any

import pytest

from papers.cagfuzz_answers import errors, learned, retrained, transferred
from papers.cagfuzz_limits import deviations
from papers.cagfuzz_page import missing, sheets, write_page
from papers.cagfuzz_rq3 import LEARNED
from papers.cagfuzz_tables import Gap, gap, listed, over_models, rate, usual
from papers.cagfuzz_trained import lesson
from papers.cagfuzz_verdict import short
from papers.rows import Row

MODELS = ("lenet1", "lenet4", "lenet5")


def row(experiment: str, seed: int, model: str = "lenet5", **more: Any) -> Row:
    names = ("arm", "tool", "terms", "images", "small", "pairs")
    protocol = {"experiment": experiment, "data": more.pop("data", "mnist"), "model": model, "seed": seed}
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


def rq2(counts: dict[str, tuple[int, int, int]], terms: str = "equal", data: str = "mnist") -> list[Row]:
    """Tests, errors and held ones by tool, for all models and three seeds."""
    same = {"terms": terms, "images": 2000, "data": data, "witness": 0.9, "clean_witness": 0.99, "more": 0.625}
    return [
        row("rq2", seed, model, tool=tool, tests=tests, errors=n + seed, held=held, l2=tests / 1000, **same)
        for seed in range(3)
        for model in MODELS
        for tool, (tests, n, held) in counts.items()
    ]


def flat(text: str) -> str:
    """Without the breaks of its lines."""
    return " ".join(text.split())


def test_a_gap_is_of_pairs_and_its_interval_students() -> None:
    told = gap({0: 0.50, 1: 0.62, 2: 0.73, 3: 9.0}, {0: 0.40, 1: 0.50, 2: 0.60})
    assert told.mean == pytest.approx((0.10 + 0.12 + 0.13) / 3)
    spread = math.sqrt(sum((v - told.mean) ** 2 for v in (0.10, 0.12, 0.13)) / 2)
    assert told.half == pytest.approx(4.302653 * spread / math.sqrt(3), rel=1e-6)
    assert told.word == "more"
    assert Gap((0.1, -0.2, 0.05)).word == "level"
    assert Gap((-0.1, -0.1, -0.1)).word == "less"
    assert Gap((0.1,)).word == "–"
    assert Gap((0.1,)).text() == "+10.00 (one seed)"
    many = Gap((1.0, -1.0) * 6)  # 12 seeds, mean 0: 2.200985 is Student's, of 11 degrees of freedom
    assert many.half == pytest.approx(2.200985 * math.sqrt(12 / 11) / math.sqrt(12), rel=1e-6)


def test_a_rate_is_of_all_tests_of_a_seed() -> None:
    told = ((100, 10), (300, 10), (200, 4))
    rows = [row("rq2", 0, m, tool="noise", tests=n, errors=e) for m, (n, e) in zip(MODELS, told, strict=True)]
    assert rate(rows, "errors", tool="noise") == {0: pytest.approx(24 / 600)}
    none = [row("rq2", 0, m, tool="noise", tests=0, errors=0) for m in MODELS]
    assert rate(none, "errors", tool="noise") == {}, "no tests, no share of them"
    assert listed([]) == ""


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
    arms = {"original": 0.3, "twice": 0.4, "noise": 0.5, "cagfuzz": 0.45}
    told = flat(learned(rq1(arms)))
    assert "**MNIST, 3 seeds**" in told
    assert "CAGFuzz: higher than the images shown twice; lower than noise as long." in told
    assert "| MNIST | the images shown twice | +5.10" in told
    assert "AEG of the sample:" not in told, "there are no rows of it"
    assert "| MNIST | FGSM" not in told, "there are no rows of it"


def test_a_generator_that_saw_the_sample_only_is_told_beside_the_other() -> None:
    told = flat(learned(rq1({"original": 0.3, "twice": 0.4, "cagfuzz": 0.45, "cagfuzz-sample": 0.35})))
    assert "CAGFuzz: higher than the images shown twice. AEG of the sample: lower than the images shown twice." in told
    assert "| +5.10 [+4.85, +5.35] | -5.00 [-5.00, -5.00] |" in told
    fgsm = {f"fgsm-{m}": 0.4 for m in MODELS}
    (line,) = (s for s in short(rq1({"cagfuzz": 0.45, "cagfuzz-sample": 0.35} | fgsm)) if "RQ1" in s)
    assert "FGSM made on another model: higher on MNIST (3 seeds). The same, where CAGFuzz's generator has" in line
    assert line.endswith("than FGSM: lower on MNIST (3 seeds).")


def test_answers_of_rq2_are_per_test_and_counts_stand_beside() -> None:
    """Noise errs less by counts, and more per test, since few of its tests are left."""
    rows = rq2({"cagfuzz": (1000, 99, 20), "noise": (100, 49, 9), "deephunter": (2000, 19, 2)})
    rows += rq2({"cagfuzz": (2000, 599, 0), "noise": (2000, 1299, 0)}, terms="own")
    told = flat(errors(rows))
    assert "**MNIST, 3 seeds.** Errors per 100 tests: more than DeepHunter; less than noise as long." in told
    assert "Counts: more than noise as long and DeepHunter." in told
    assert "Errors held per 100 tests: more than DeepHunter; less than noise as long." in told
    assert "The cosine leaves noise as long 100 tests of 2000 images, so that counts mislead." in told
    assert "On own terms, errors in 2000 tests each: CAGFuzz 600, noise as long 1300." in told
    assert "The witness gives 90.0 % of CAGFuzz's tests their label, and 99.0 % of their images." in told
    assert "| CAGFuzz | 1000 | 100 | 20 | 10.00 | 2.00 | | 600 |" in told
    assert "| noise, as long | 100 | 50 | 9 | 50.00 | 9.00 | -40.00 [-42.24, -37.76] | 1300 |" in told
    assert "CIFAR-10's generator" not in told
    assert "CIFAR-10's generator is a poor one" in errors(rq2({"cagfuzz": (9, 1, 1)}, data="cifar10"))
    first = next(short(rows))
    assert first.startswith("**RQ2, errors per 100 tests, CAGFuzz against** noise as long: less on MNIST (3 seeds).")


def test_counts_that_say_the_same_are_not_told_twice() -> None:
    told = flat(errors(rq2({"cagfuzz": (2000, 99, 20), "noise": (2000, 49, 9)})))
    assert "more than noise as long. Counts say the same." in told
    assert "leaves" not in told


def test_what_errors_measure_is_told_of_the_least_and_the_usual_training() -> None:
    some = [row("trained", s, tool="cagfuzz", terms="own", pairs=p, errors=9000 / p, held=1) for s in (0, 1) for p in
            (300, 900)]  # fmt: skip
    assert lesson(some) == [], "nothing to compare with"
    (told,) = lesson(some + rq2({"cagfuzz": (2000, 4, 2)}, terms="own"))
    assert "MNIST (2 seeds) 30 ± 0 (1 ± 0 held) after 300 pairs of images, 5 ± 1 (2 ± 0 held) after 16000." in told


def test_answers_of_rq3_stand_beside_the_controls() -> None:
    rows = [
        row("rq3", seed, m, arm=arm, clean=value, mixed=value, fresh=0.5, static=dict.fromkeys(LEARNED, 0.5))
        for seed in range(2)
        for m in MODELS
        for arm, value in (("before", 0.97), ("plain", 0.98), ("cagfuzz", 0.96))
    ]
    told = retrained(rows)
    assert "| MNIST, 2 seeds | clean test set | 96.0 ± 0.0 | -1.00 [-1.00, -1.00] | -2.00 [-2.00, -2.00] | – |" in told


def test_what_differs_from_the_paper_is_told_with_the_rows_numbers() -> None:
    assert "need not activate" not in deviations([])
    rows = rq2({"cagfuzz": (1400, 9, 9), "noise": (300, 9, 9), "fgsm": (50, 9, 9)})
    rows += [
        row("rq3", 0, m, arm=arm, distinct=n)
        for m in MODELS
        for arm, n in (("cagfuzz", 2400), ("noise", 480), ("fgsm", 60))
    ]
    told = flat(deviations(rows))
    assert "more are active in 62 % on MNIST (column" in told
    assert "Mean L2 of RQ2: MNIST CAGFuzz 1.40, noise, as long 0.30, FGSM, as long 0.05." in told
    assert "CAGFuzz 2400, noise, as long 480 (each 5 times an epoch), FGSM, as long 60 (40 times)" in told
    assert "the public code leaves out pool, fc and flatten layers" in told
    level = [row("rq3", 0, m, arm=arm, distinct=100) for m in MODELS for arm in ("cagfuzz", "noise", "fgsm")]
    assert "again and again" not in deviations(level)


def test_sheets_have_the_caption_of_those_who_draw_them(tmp_path: Path) -> None:
    assert sheets(tmp_path) == ""
    (tmp_path / "cagfuzz-mnist.png").touch()
    assert "the oldest and for the newest snapshot: halfway, the test case" in flat(sheets(tmp_path))
    assert "colours shift" not in sheets(tmp_path)
    (tmp_path / "cagfuzz-cifar10.png").touch()
    assert "colours shift" in sheets(tmp_path)


def test_the_page_says_what_is_missing(tmp_path: Path) -> None:
    write_page([], tmp_path)
    empty = (tmp_path / "cagfuzz.md").read_text()
    assert "nothing is said" in empty
    assert "cagfuzz.py rq2 --data cifar10 --models vgg19`: everything: all" in empty
    rows = rq1({"original": 0.3, "twice": 0.4, "noise": 0.5, "cagfuzz": 0.45}) + rq2({"cagfuzz": (1990, 500, 20)})
    write_page(rows, tmp_path)
    page = (tmp_path / "cagfuzz.md").read_text()
    assert "| LeNet-5, paper | 60.6 |" in page
    assert "| CAGFuzz | 1990 ± 0 | 501 ± 1 |" in page
    assert "894 |" in page
    assert "original, twice, noise, cagfuzz: 3 and 4; fgsm-lenet1" in missing(rows)
    assert "--data cifar10 --aeg images=5000,first_norm=false" in missing(rows)
