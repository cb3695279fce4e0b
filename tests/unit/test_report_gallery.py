"""The gallery of the report: every failure of any kind of run is on it, in pictures that are true."""

import io
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

import pytest
import torch
from PIL import Image
from torch import Tensor

import assay
from assay.core import store
from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.core.ids import case_ids
from assay.core.images import to_bytes
from assay.core.shards import decode
from assay.engines.found import load_failures
from assay.outputs.models import Models
from assay.outputs.report import gallery as galleries
from assay.outputs.report import pictures
from assay.outputs.report.build import report
from assay.outputs.report.gallery import gallery_of
from assay.outputs.report.order import rows_of
from assay.outputs.report.parts import Note, Page
from assay.outputs.report.shown import _classes, shown
from assay.outputs.report.single import single
from assay.subjects.sources.module import ModuleTarget
from made_runs import made_run
from report_pages import Read, data_of, gallery

HERE = files("assay.outputs.report")
OLD = Path(__file__).parents[1] / "faults" / "old_runs"


def tile(page: Path, told: dict[str, Any], card: dict[str, Any], name: str) -> Tensor:
    """The pixels of one picture of a card, (H, W) or (H, W, 3), as a browser cuts it out of its sheet."""
    sheet, first, names, *_ = card["tiles"]
    source, across, _ = told["sheets"][sheet]
    place, (width, height) = first + names.index(name), told["tile"]
    x, y = place % across * (width + 2) + 1, place // across * (height + 2) + 1  # a pixel around each
    with Image.open(io.BytesIO((page.parent / source).read_bytes())) as image:
        cut = image.crop((x, y, x + width, y + height))
    shape = (height, width) if cut.mode == "L" else (height, width, 3)
    return torch.frombuffer(bytearray(cut.tobytes()), dtype=torch.uint8).view(shape)


EMPTY = Page("empty", Note("Nothing to see."), ())


def test_every_failure_of_the_run_is_a_card() -> None:
    run = made_run("many", 437, (1, 8, 8))
    told = data_of(report(run))
    failures = load_failures(store.read(run))
    assert sorted(card["found"] for card in told["cards"]) == list(range(437))
    ids = case_ids(failures)
    assert all(card["id"] == ids[card["found"]] for card in told["cards"])
    assert [card["true"] for card in told["cards"]] == failures.y[[card["found"] for card in told["cards"]]].tolist()
    assert told["total"] == 437


def test_what_a_page_cannot_hold_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(galleries, "MOST", 20)
    page = report(made_run("many", 50, (1, 8, 8)))
    told = data_of(page)
    assert (len(told["cards"]), told["total"]) == (20, 50)
    assert "20 of 50 failures are on this page" in page.read_text()


def test_one_of_each_kind_comes_first_in_turn_over_the_classes() -> None:
    kind, pair = torch.tensor([0, 0, 1, 2, 2, 3]), torch.tensor([0, 0, 0, 1, 1, 1])
    size = torch.tensor([0.5, 0.1, 0.9, 0.2, 0.3, 0.4])
    zero = torch.zeros(6, dtype=torch.int64)
    cases = Cases(torch.zeros(6, 2), zero, zero).note(pred=pair, kind_of_failure=kind, size=size, seeded=zero == 0)
    assert rows_of(cases, 6).tolist() == [1, 3, 2, 5, 0, 4]
    assert rows_of(cases, 2).tolist() == [1, 3]


@pytest.mark.parametrize("channels", [1, 3])
def test_the_tiles_of_a_card_are_its_seed_case_and_shrunk_form(channels: int) -> None:
    run = made_run("tiles", 70, (channels, 8, 6), shrunk=5)
    page = report(run)
    told, folder = data_of(page), store.read(run)
    failures = load_failures(folder)
    smaller = decode(folder.file("state/shrunk-001-000.safetensors"))["x"]

    def seen(x: Tensor) -> Tensor:
        return to_bytes(x)[0] if channels == 1 else to_bytes(x).permute(1, 2, 0)

    for card in told["cards"]:
        row = card["found"]
        assert torch.equal(tile(page, told, card, "seed"), seen(failures.info["seed_x"][row]))
        assert torch.equal(tile(page, told, card, "case"), seen(failures.x[row]))
        assert bool(card["left"]) == ("shrunk" in card["tiles"][2]) == (row < 5)
        if row < 5:
            assert torch.equal(tile(page, told, card, "shrunk"), seen(smaller[row]))


def test_a_difference_is_grey_where_nothing_changed_and_its_factor_is_told() -> None:
    seed = torch.full((2, 1, 2, 2), 0.5)
    x = seed.clone()
    x[0, 0, 0, 1], x[1, 0, 1, 0] = 0.5 + 0.04, 0.5 - 0.3
    change, factor = pictures._change(x, seed)
    assert factor.tolist() == [20, 2], "the largest of 1, 2, 5, 10 … that keeps the change in range"
    torch.testing.assert_close(change[0, 0], torch.tensor([[0.5, 0.5 + 0.4], [0.5, 0.5]]))
    torch.testing.assert_close(change[1, 0], torch.tensor([[0.5, 0.5], [0.5 - 0.3, 0.5]]))


def test_inputs_of_other_bounds_are_shown_and_measured_in_their_own_range() -> None:
    run = made_run("wide", 4, (1, 8, 8))
    folder = store.read(run)
    failures = shown(folder)
    assert failures is not None
    line = gallery(run).cards[0].line
    steps = float(re.findall(r"= ([\d.]+)/255", line)[0])
    wide = replace(failures, bounds=(-1.0, 1.0))
    again = gallery_of(folder, wide, Models("net")).cards[0].line
    assert float(re.findall(r"= ([\d.]+)/255", again)[0]) == pytest.approx(steps / 2, rel=0.02)
    assert torch.equal(pictures._seen(torch.zeros(1, 1, 2, 2), (-1.0, 1.0)), torch.full((1, 1, 2, 2), 0.5))


def test_large_pictures_of_many_failures_are_shown_smaller_and_that_is_told() -> None:
    whole, many = pictures.layout_of((3, 224, 224), 10), pictures.layout_of((3, 224, 224), 5000)
    assert whole is not None
    assert not whole.smaller
    assert many is not None
    assert many.smaller
    assert 4 * 5000 * many.width * many.height <= pictures.BUDGET
    page = report(made_run("large", 3, (1, 400, 400))).read_text()
    assert "instead of 400×400 pixels" in page


def test_inputs_with_other_channels_are_shown_by_their_mean() -> None:
    run = made_run("five", 5, (5, 8, 8))
    page = report(run)
    told, failures = data_of(page), load_failures(store.read(run))
    card = told["cards"][0]
    assert torch.equal(tile(page, told, card, "case"), to_bytes(failures.x[card["found"]].mean(0)))
    assert "Inputs have 5 channels; pictures show their mean" in page.read_text()


def test_a_later_report_takes_its_old_sheets_away_and_nothing_else() -> None:
    run = made_run("again", 40, (1, 8, 8))
    page = report(run)
    before = {file.name for file in (page.parent / "images").iterdir()}
    mine = page.parent / "images" / "notes.png"
    mine.write_bytes(b"mine")
    with store.continued(run) as folder:
        shard = next(iter(folder.commits("fuzz")))
        (name,) = shard.files
        folder.commit({"cases/step-000777.safetensors": folder.file(name)}, kind="fuzz", unit=1, rows=[1], counts={})
    report(run)
    after = {file.name for file in (page.parent / "images").iterdir()}
    assert mine.name in after
    assert not before & after
    sources = {source for source, *_ in data_of(page)["sheets"]}
    assert {f"images/{name}" for name in after - {mine.name}} == sources


def test_vectors_have_a_table_of_what_changed_instead_of_pictures() -> None:
    run = made_run("vectors", 9, (7,))
    page = report(run)
    told = data_of(page)
    assert told["tile"] is None
    failures = load_failures(store.read(run))
    for card in told["cards"]:
        delta = failures.x[card["found"]] - failures.info["seed_x"][card["found"]]
        entries = [int(entry) for entry, *_ in card["changes"]]
        assert float(delta[entries[0]].abs()) == float(delta.abs().max())
        assert len(entries) == min(5, int((delta != 0).sum()))
    assert '<table class="changes">' in page.read_text()
    assert not (page.parent / "images").exists()


def test_a_saved_evaluation_shows_what_fooled_it_by_attack(digits_model: str) -> None:
    result = assay.evaluate(digits_model, "digits/test[:60]", suite="fgsm,pgd", eps=0.2, each=True, save="kept")
    told = data_of(report("kept"))
    names = [told["makers"][card["maker"]] for card in told["cards"]]
    assert Counter(names) == {name: result.attacks[name].broken for name in ("fgsm", "pgd")}
    assert all(card["tiles"][2] == ["seed", "case", "difference"] for card in told["cards"])
    assert all(0.1 <= card["confidence"] <= 1 for card in told["cards"])
    assert all(card["size"] <= 0.2001 for card in told["cards"])


def test_an_evaluation_tells_the_names_of_its_classes_and_the_range_of_its_inputs(
    linear_target: Callable[..., ModuleTarget],
) -> None:
    target = linear_target()
    net = ModuleTarget(target.module, InputSpec((1, 4, 4), (-1.0, 1.0), ("cat", "dog", "bird")))
    x = 2 * torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(0)) - 1
    data = assay.Data("made", Cases.of(x, net(x).argmax(1)), net.spec)
    result = assay.evaluate(net, data, suite="fgsm", eps=0.5, save="named")
    assert result.attacks["fgsm"].broken
    told = data_of(report("named"))
    assert told["names"][:3] == ["cat", "dog", "bird"]
    steps = {re.findall(r"= ([\d.]+)/255", card["line"])[0] for card in told["cards"]}
    assert steps == {"63.8"}, "0.5 of a range of 2 is a quarter of 255"


def test_a_pool_that_keeps_every_case_shows_right_and_wrong(digits_model: str) -> None:
    data = assay.load_data("digits/train[:30]")
    found = assay.fuzz("noise", digits_model, data, run="pool", eps=0.3, cases=60, changes={"oracle": "every"})
    told = data_of(report("pool"))
    assert told["every"]
    assert told["what"] == "case"
    right = [card for card in told["cards"] if card["true"] == card["predicted"]]
    assert len(told["cards"]) - len(right) == found.wrong
    assert right


@pytest.mark.parametrize(("kind", "count"), [("fuzz", 13), ("eval", 3), ("harden", 35)])
def test_runs_of_older_versions_are_shown(kind: str, count: int, tmp_path: Path) -> None:
    with ZipFile(OLD / f"{kind}.zip") as old:
        old.extractall(tmp_path)
    page = report(tmp_path / "run")
    told = data_of(page)
    assert len(told["cards"]) == count
    assert all(card["confidence"] is None for card in told["cards"])
    if kind == "eval":
        assert f"Of {count} failures the clean input is not in the run" in page.read_text()
        assert told["cards"][0]["tiles"][2] == ["case"]
    if kind == "harden":
        assert {card["round"] for card in told["cards"]} == {1}


def test_a_damaged_shard_is_named_and_the_others_are_shown() -> None:
    run = made_run("torn", 1500, (1, 4, 4))
    (run / "cases" / "step-000001.safetensors").write_bytes(b"torn")
    page = report(run)
    assert len(data_of(page)["cards"]) == 1000
    text = page.read_text()
    assert "Not shown, because it could not be read" in text
    assert "step-000001.safetensors" in text


def test_one_file_holds_everything_where_it_fits() -> None:
    run = made_run("small", 30, (1, 8, 8))
    page = report(run, single_file=True)
    assert page == run / "report" / "single.html"
    told = data_of(page)
    assert len(told["cards"]) == 30
    read = Read(page.read_text())
    sources = [value for tag, name, value in read.attributes if tag == "image" and name == "href"]
    assert len(sources) == len(told["sheets"])
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "are on this page, in turn" not in page.read_text()
    assert not (page.parent / "images").exists()


def test_one_file_keeps_its_limit_by_showing_fewer_of_all_kinds_and_says_so() -> None:
    run = store.read(made_run("much", 600, (3, 32, 32), tuple("abc")))
    failures = shown(run)
    assert failures is not None
    limit = 1_000_000
    page = single(run, EMPTY, failures, Models("net"), {}, limit)
    assert 0.5 * limit < len(page) <= limit
    cards = data_of(page)["cards"]
    assert 16 <= len(cards) < 600
    assert f"{len(cards)} of 600 failures are on this page, in turn over the pairs of classes" in page.decode()
    assert {(card["true"], card["predicted"]) for card in cards} == {
        (a, b) for a in range(3) for b in range(3) if a != b
    }


def test_one_file_of_vectors_keeps_its_limit_too() -> None:
    run = store.read(made_run("words", 900, (4,)))
    failures = shown(run)
    assert failures is not None
    page = single(run, EMPTY, failures, Models("net"), {}, 200_000)
    assert len(page) <= 200_000
    assert f"{len(data_of(page)['cards'])} of 900 failures are on this page" in page.decode()


def test_another_place_for_the_page_takes_the_pictures_along(tmp_path: Path) -> None:
    run = made_run("moved", 8, (1, 8, 8))
    page = report(run, out=tmp_path / "there" / "page.html")
    (source, *_), *_ = data_of(page)["sheets"]
    assert source.startswith("page-images/")
    assert (page.parent / source).read_bytes().startswith(b"\x89PNG")
    assert not (run / "report").exists()


def test_a_place_with_an_odd_name_is_an_address_to_the_script_too(tmp_path: Path) -> None:
    run = made_run("odd", 8, (1, 8, 8))
    page = report(run, out=tmp_path / "a b#c?d%41é.html")
    (source, *_), *_ = data_of(page)["sheets"]
    assert source.startswith("a%20b%23c%3Fd%2541%C3%A9-images/")
    assert (tmp_path / unquote(source)).read_bytes().startswith(b"\x89PNG")


def test_numbers_of_classes_that_no_model_has_do_not_fill_the_memory() -> None:
    cases = Cases(torch.zeros(1, 4), torch.tensor([1 << 40]), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(UsageError, match="no model has so many classes"):
        _classes(store.read(made_run("many", 2, (1, 8, 8))), cases.note(pred=torch.tensor([0])))
