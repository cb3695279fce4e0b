"""Arenas on digits: rows are made, measured alike, kept, and never made twice."""

import copy
import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import assay
import small
from assay.cli import run
from assay.core.cases import Cases
from assay.core.errors import Interrupted, UsageError
from assay.core.randomness import Stream
from assay.core.registry import register
from assay.engines import arena as engine
from assay.engines.arena import Arena
from assay.engines.arena_columns import unpacked
from assay.engines.arena_folder import Folder
from assay.engines.evaluate import evaluate as run_evaluation
from assay.outputs.arena_tables import arena_markdown, not_run
from assay.stages.trainers.watch import Watch
from assay.subjects.bench import Splits, with_validation
from assay.subjects.data.load import load_splits

COLUMNS = "clean, static(steps=2, restarts=1, step=1), fgsm[:20]"
STATIC = "static(steps=2, restarts=1, step=1)"

BROKEN = "robot(train.epochz=1)"
BAD = """
def bad(module, data, extra, *, rng, watch, epochs: int = 1):
    return module
"""


def spoils(
    module: nn.Module, data: Splits, extra: Cases | None, *, rng: Stream, watch: Watch, epochs: int = 1
) -> nn.Module:
    """Answers the first class, whatever it is asked: the worst row there can be."""
    net = copy.deepcopy(module)
    last = [layer for layer in net.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.arange(len(last.bias), 0, -1))
    return net


@pytest.fixture(autouse=True, scope="module")
def _known() -> None:
    """Not at import: tests over the registry are collected then."""
    register("trainer", name="spoils", needs=("train",))(spoils)


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A linear net that knows each class by its mean image."""
    small.prepare(tmp_path)
    return small.MODEL


def arena(model: str, *rows: str, **changed: Any) -> Arena:
    given: dict[str, Any] = {"eps": 0.1, "time": "0.5s", "columns": COLUMNS, "cases": 60, "val_cases": 10, "out": "a"}
    return assay.arena(model, "digits", rows=rows, **given | changed)


def test_a_bad_row_is_found_and_all_are_measured_on_the_same_inputs(tiny: str) -> None:
    told = arena(tiny, "spoils", "plain(epochs=1, lr=1e-9)", seeds=2)
    standing = told.standing()
    assert set(standing.cells) == {"none", "spoils", "plain(epochs=1, lr=1e-09)"}
    assert {row: cells["clean"].best for row, cells in standing.cells.items()} == {
        "none": True,
        "plain(epochs=1, lr=1e-09)": True,
        "spoils": False,
    }
    assert standing.cells["spoils"]["clean"].mean < 0.2
    assert (standing.seeds["none"], standing.seeds["spoils"]) == (1, 2)
    rows = {(row["row"], row["seed"]): row for row in told.rows}
    none, same = rows["none", 0], rows["plain(epochs=1, lr=1e-09)", 1]
    assert none["columns"][STATIC]["rows"] == same["columns"][STATIC]["rows"]
    assert {name: column["n"] for name, column in none["columns"].items()} == {
        "clean": 60,
        STATIC: 60,
        "fgsm": 20,
    }
    for name, column in none["columns"].items():
        assert column["right"] == round(sum(unpacked(column))), name


def test_a_row_has_its_whole_protocol_and_the_command_that_makes_it(tiny: str, tmp_path: Path) -> None:
    arena(tiny, "plain")
    told = json.loads((tmp_path / "a/rows/plain-seed-0.json").read_text())
    assert told["protocol"]["model_fingerprint"]
    assert "steps=2" in told["protocol"]["columns"][STATIC]["attacks"][0]
    assert "time=0.5" in told["made"]["stages"]["train"]
    assert 0 < told["made"]["seconds"] < 2
    assert told["made"]["passes"] > 1000
    assert told["environment"]["packages"]["torch"]
    words = told["command"]
    assert "--row plain" in words
    assert "fgsm[:20]" in words
    (tmp_path / "a/rows/plain-seed-0.json").unlink()
    assert run([*shlex.split(words)[1:], "--out", "a", "--quiet"]) == 0, (
        "the same protocol, so the same folder takes it"
    )
    again = json.loads((tmp_path / "a/rows/plain-seed-0.json").read_text())
    assert again["columns"]["clean"]["rows"] == told["columns"]["clean"]["rows"]


def test_an_arena_to_choose_by_leaves_the_test_part_alone(tiny: str, tmp_path: Path) -> None:
    told = arena(tiny, "spoils", part="val", out="v")
    val = with_validation(load_splits("digits")).part("val")
    right = assay.evaluate(tiny, val[:60], suite="fgsm", eps=0.1).accuracy("clean")
    none = next(row for row in told.rows if row["row"] == "none")
    assert none["columns"]["clean"]["accuracy"] == pytest.approx(right, abs=1e-6)
    assert told.protocol["part"] == "val"
    assert "60 validation inputs" in arena_markdown(told)
    spoiled = json.loads((tmp_path / "v/rows/spoils-seed-0.json").read_text())
    assert "--part val" in spoiled["command"]
    assert run(["report", "v"]) == 0
    assert "validation data hash" in (tmp_path / "v/report/index.html").read_text()
    with pytest.raises(UsageError, match="another protocol"):
        arena(tiny, "spoils", out="v")


def test_trainers_share_what_they_are_set_to_and_rows_and_recipes_keep_their_own(tiny: str) -> None:
    shared = "batch=50, warm=0.25"
    told = arena(tiny, "plain", "trades(batch=40)", "assay", trainers=shared, columns="clean")
    stages = {row["row"]: row["made"]["stages"]["train"] for row in told.rows if row["row"] != "none"}
    assert "batch=50" in stages["plain"]
    assert "warm" not in stages["plain"], "which it does not know"
    assert "batch=40" in stages["trades(batch=40)"]
    assert "warm=0.25" in stages["trades(batch=40)"]
    assert "batch=50" not in stages["assay"]
    assert "Every row that is a trainer has batch=50, warm=0.25" in arena_markdown(told)
    assert all("--trainers 'batch=50, warm=0.25'" in row["command"] for row in told.rows)
    with pytest.raises(UsageError, match="another protocol"):
        arena(tiny, "plain", columns="clean")


def test_a_column_of_as_many_inputs_as_the_others_is_not_called_smaller(tiny: str) -> None:
    told = arena(tiny, "spoils", columns="clean, fgsm[:60]")
    assert "Of fewer inputs" not in arena_markdown(told)


def test_seeds_of_unlike_settings_are_told(tiny: str, tmp_path: Path) -> None:
    """As where a recipe was another one when its first seed was run."""
    whole = arena(tiny, "plain(epochs=1)", seeds=2, columns="clean").to_json()
    assert "Seeds of unlike settings" not in arena_markdown(Arena.read("a"))
    one = next(row for row in whole["rows"] if row["seed"] == 1)
    one["made"]["stages"]["train"] = one["made"]["stages"]["train"].replace("batch=64", "batch=65")
    (tmp_path / "a.json").write_text(json.dumps(whole))
    assert "Seeds of unlike settings, so their mean is of two things: plain(epochs=1)" in arena_markdown(
        Arena.read("a.json")
    )


def test_rows_that_move_their_images_are_told_beside_spatial(tiny: str) -> None:
    rows = ["plain(epochs=1)", 'plain(augment="shift=0.2", epochs=1)', "plain(augment=flip, epochs=1)"]
    beside = arena(tiny, *rows, columns="clean, spatial")
    assert f"move the images that they learn from at random: {rows[1]}." in arena_markdown(beside)
    assert "at random" not in arena_markdown(arena(tiny, *rows, columns="clean", out="b"))
    whole = beside.to_json()  # a trainer of others has an augmentation of its own
    for row in whole["rows"]:
        row["made"] = row["made"] | {"stages": {"train": "mine.py:own(augment=mixup)"}}
    assert "at random" not in arena_markdown(Arena(whole["protocol"], whole["rows"]))


def test_seeds_that_did_unlike_work_in_their_time_are_told(tiny: str, tmp_path: Path) -> None:
    whole = arena(tiny, "plain(epochs=1)", seeds=2, columns="clean").to_json()
    for passes, said in ((150, False), (151, True)):
        for row in whole["rows"]:
            row["made"]["passes"] = passes if row["seed"] else 100
        (tmp_path / "a.json").write_text(json.dumps(whole))
        assert ("so their spread is that of a busy machine, too: plain" in arena_markdown(Arena.read("a.json"))) == said


def test_rows_that_are_there_are_not_done_again(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arena(tiny, "spoils")
    monkeypatch.setattr(engine, "made_by", lambda *_: pytest.fail("made again"))
    assert len(arena(tiny, "spoils").rows) == 2
    with pytest.raises(pytest.fail.Exception):
        arena(tiny, "plain")


def test_another_protocol_is_refused(tiny: str) -> None:
    arena(tiny, "none")
    with pytest.raises(UsageError, match=r"another protocol.* eps 0.1, now 0.2.*choose another --out"):
        arena(tiny, "none", eps=0.2)
    with pytest.raises(UsageError, match="columns clean"):
        arena(tiny, "none", columns="pgd")
    with pytest.raises(UsageError, match=r"time 0.5, now none; counted|time 0.5, now none; passes none, now 500"):
        arena(tiny, "none", time=None, passes=500)


def test_a_folder_of_other_things_is_left_alone(tiny: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds other things \(thesis.txt\)"):
        arena(tiny, "none")


def test_a_row_that_was_stopped_goes_on_with_the_column_it_was_at(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    whole = run_evaluation

    def evaluate(*given: Any, **more: Any) -> Any:
        asked.append(str(more["suite"]))
        if len(asked) == 2:
            signal.raise_signal(signal.SIGINT)
        return whole(*given, **more)

    monkeypatch.setattr(engine, "evaluate", evaluate)
    with pytest.raises(KeyboardInterrupt):
        arena(tiny, "none")
    assert not list((tmp_path / "a/rows").iterdir())
    told = arena(tiny, "none")
    assert len(asked) == len(set(asked)) + 1, asked  # only the one that was stopped is asked twice
    assert set(told.rows[0]["columns"]) == {"clean", STATIC, "fgsm"}
    assert not list((tmp_path / "a/state").iterdir())


def test_ctrl_c_in_a_hardening_ends_the_arena_and_the_same_call_goes_on(tiny: str, tmp_path: Path) -> None:
    def press(numbers: Any) -> None:
        if numbers["phase"] == "train":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match="the same command goes on"):
        arena(tiny, "plain", progress=press)
    assert [path.name for path in (tmp_path / "a/rows").iterdir()] == ["none-seed-0.json"]
    assert {row["row"] for row in arena(tiny, "plain").rows} == {"none", "plain"}


def test_a_damaged_row_is_made_anew(tiny: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    arena(tiny, "none")
    file = tmp_path / "a/rows/none-seed-0.json"
    file.write_text(file.read_text().replace('"n": 60', '"n": 61'))
    assert len(arena(tiny, "none").rows) == 1
    assert "none-seed-0.json is damaged" in caplog.text


def test_a_row_that_cannot_be_run_is_told(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "USUAL", ("spoils", BROKEN))
    told = arena(tiny)
    assert {row["row"] for row in told.rows} == {"none", "spoils"}
    why = not_run(told)
    assert "no parameter 'epochz'" in why[BROKEN]
    assert why["renew"] == ""
    assert "spoils" not in why
    with pytest.raises(UsageError, match="epochz"):
        arena(tiny, BROKEN)  # asked for by name


def test_recipes_find_cases_in_half_their_time(tiny: str) -> None:
    told = arena(tiny, "noise(rounds=2, mutate.eps=0.9)", time="2s")
    made = next(row["made"] for row in told.rows if row["row"] != "none")
    assert 1 <= made["rounds"] <= 2
    assert made["found"]["failures"] > 0
    assert made["found"]["cases"] >= made["found"]["failures"] >= made["found"]["distinct"] > 0
    assert "time=0.5" in made["stages"]["train"]
    assert 0.5 < made["seconds"] < 6


def test_equal_passes(tiny: str) -> None:
    told = arena(tiny, "plain", "trades", "noise(mutate.eps=0.9)", time=None, passes=60_000)
    made = {row["row"]: row["made"] for row in told.rows}
    assert 40_000 < made["plain"]["passes"] < 80_000
    assert 40_000 < made["trades"]["passes"] < 100_000
    assert made["plain"]["epochs"] > 3 * made["trades"]["epochs"], "an epoch of trades takes many passes"
    assert 30_000 < made["noise(mutate.eps=0.9)"]["passes"] < 90_000
    assert "60k passes a row" in arena_markdown(told)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"eps": None}, "give --eps"),
        ({"passes": 10}, "same --time or the same --passes"),
        ({"seeds": 0}, "must be at least 1"),
        ({"part": "train"}, "on the test part, or, to choose among rows, on val"),
        ({"trainers": "rng=3"}, "no trainer has a parameter 'rng'"),
        ({"trainers": "bach=3"}, "no trainer has a parameter 'bach'.*batch"),
        ({"columns": "nosuch"}, "column 'nosuch' cannot be measured"),
    ],
)
def test_what_cannot_be_done_is_refused(changed: dict[str, Any], words: str, tiny: str) -> None:
    with pytest.raises(UsageError, match=words):
        arena(tiny, "none", **changed)
    assert not Path("a").exists()


# At the command line


def test_an_arena_is_shown_as_table_markdown_json_and_page(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arena(tiny, "spoils", seeds=2)
    assert run(["arena", "a"]) == 0
    shown = capsys.readouterr().out
    assert "spoils" in shown
    assert "assay report a" in shown
    assert run(["arena", "a", "--markdown"]) == 0
    text = capsys.readouterr().out
    line = next(line for line in text.split("\n") if line.startswith("| `none`"))
    assert line.startswith("| `none` | **9")  # the best of clean stand out
    assert "**" not in next(line for line in text.split("\n") if line.startswith("| `spoils`"))[:30]
    assert "`robot`" in text.split("Rows not run")[1]
    assert "Of fewer inputs: fgsm of 20.\n" in text
    assert run(["arena", "a", "--json"]) == 0
    whole = capsys.readouterr().out
    (tmp_path / "a.json").write_text(whole)
    assert json.loads(whole)["table"]["spoils"]["seeds"] == 2
    assert arena_markdown(Arena.read("a.json")) == text, "a file with its JSON says the same"
    assert run(["report", "a"]) == 0
    page = Path(capsys.readouterr().out.strip())
    assert page == Path("a/report/index.html")
    assert "Told apart from the best" in page.read_text()
    assert "spoils" in page.read_text()


def test_what_is_no_arena_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["arena", "nowhere"]) == 4
    assert "no arena 'nowhere'; to begin one: assay arena MODEL --data DATA --eps EPS" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert run(["arena", "empty"]) == 4
    assert "has no arena.json" in capsys.readouterr().err
    assert run(["arena", "m", "--eps", "0.1"]) == 4
    assert "--data mnist" in capsys.readouterr().err
    (tmp_path / "x.json").write_text("[]")
    assert run(["arena", "x.json"]) == 4


def test_a_row_that_another_process_makes_is_left_to_it(tiny: str, caplog: pytest.LogCaptureFixture) -> None:
    first = arena(tiny, "spoils")
    with Folder(Path(first.place)).claimed("plain", 0) as ours:
        assert ours
        told = arena(tiny, "plain", "plain(epochs=1)")
    assert {row["row"] for row in told.rows} == {"none", "spoils", "plain(epochs=1)"}
    assert "row plain, seed 0, is being made by another process" in caplog.text
    assert {row["row"] for row in arena(tiny, "plain").rows} == {"none", "spoils", "plain(epochs=1)", "plain"}


def test_processes_share_the_rows(tiny: str) -> None:
    """Each row is made once, whoever makes it."""
    words = ["arena", tiny, "--data", "digits", "--eps", "0.1", "--passes", "20000", "--seeds", "2", "--cases", "60"]
    words += [
        "--columns",
        COLUMNS,
        "--val-cases",
        "10",
        "--out",
        "a",
        "--quiet",
        "--row",
        "plain",
        "--row",
        "spoils.py:bad",
    ]
    Path("spoils.py").write_text(BAD)
    both = [subprocess.Popen([sys.executable, "-m", "assay", *words], stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    rows = [(row["row"], row["seed"]) for row in Arena.read("a").rows]
    assert sorted(rows) == [("none", 0), ("plain", 0), ("plain", 1), ("spoils.py:bad", 0), ("spoils.py:bad", 1)]
