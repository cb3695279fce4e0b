"""Exports: every value comes out, nothing is overwritten, no name leads out of the folder."""

import csv
import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import assay
from assay.core.cases import InputSpec
from assay.core.errors import NothingToTest, UsageError
from assay.core.ids import case_ids
from assay.engines.blocks import load_examples
from assay.engines.found import Found
from assay.engines.select import select
from assay.subjects.bench import Data, fitted
from assay.subjects.sources.load import load_target
from report_pages import data_of


@pytest.fixture
def found(digits_model: str) -> Found:
    return assay.fuzz("noise", digits_model, "digits/train[:100]", run="shown", eps=0.4)


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def index_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "index.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_an_npz_holds_every_value_and_loads_as_data(found: Found, digits_model: str, tmp_path: Path) -> None:
    path, cases = assay.export("shown", to="npz")
    failures = found.load()
    assert (path, cases) == (Path("shown.npz"), len(failures))
    with np.load(tmp_path / path, allow_pickle=False) as arrays:
        for name in ("x", "y", "origin"):
            assert torch.equal(torch.from_numpy(arrays[name]), getattr(failures, name)), name
        for name in ("seed_x", "pred", "linf", "l2", "ssim", "step"):
            assert torch.equal(torch.from_numpy(arrays[name]), failures.info[name]), name
        assert arrays["id"].tolist() == case_ids(failures)
        assert "seed" not in arrays, "a place within a shard means nothing outside it"
    result = assay.evaluate(digits_model, "shown.npz", suite="fgsm", eps=0.0)
    assert result.clean.n == len(failures)
    assert result.clean.right == 0, "failures that still fail"


def test_a_selection_comes_out_in_its_order_with_its_score(found: Found) -> None:
    picked = select("shown", by="top(score=gini)", k=7)
    path, cases = assay.export("shown", selected=picked.number)
    assert (path.name, cases) == ("shown-selected-001.npz", 7)
    with np.load(path) as arrays:
        assert torch.equal(torch.from_numpy(arrays["x"]), picked.cases.x)
        assert (np.diff(arrays["gini"]) <= 0).all()
    with pytest.raises(UsageError, match="has no selection 2; its last one is 1"):
        assay.export("shown", selected=2, out="other.npz")


def test_a_shrunk_case_names_the_failure_it_was_made_of(
    found: Found, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("assay"), "propagate", True)
    caplog.set_level(logging.INFO, "assay")
    failures, made = found.load(), found.shrink(k=8)
    original = case_ids(failures[made.cases.info["row"]])
    assert original != case_ids(made.cases)
    path, _ = assay.export("shown", shrunk=1)
    with np.load(path) as arrays:
        assert arrays["of"].tolist() == original
        assert arrays["id"].tolist() == case_ids(made.cases)
    assert assay.replay("shown", original).of == len(set(original))
    assert len(assay.load_data(str(path))) == len(made)
    folder, _ = assay.export("shown", to="images", shrunk=1)
    assert [row["of"] for row in index_of(folder)] == original
    assert f"{made.eight_bit} of {len(made)} cases were checked to fail as images of 8 bits" in caplog.text
    assert "PNG rounds" not in caplog.text
    plain, _ = assay.export("shown", to="images")
    assert "of" not in index_of(plain)[0]
    assert "PNG rounds to 8 bits a channel" in caplog.text


def test_of_an_evaluation_only_what_fooled_the_model(digits_model: str) -> None:
    assay.evaluate(digits_model, "digits/test[:60]", suite="fgsm", eps=0.1, save="kept")
    examples = load_examples("kept")
    fooling = examples[examples.info["success"].bool()]
    assert 0 < len(fooling) < len(examples)
    path, cases = assay.export("kept", to="npz")
    assert cases == len(fooling)
    with np.load(path) as arrays:
        assert torch.equal(torch.from_numpy(arrays["x"]), fooling.x)
    folder, _ = assay.export("kept", to="images")
    assert {row["linf"] for row in index_of(folder)} == {""}, "an evaluation keeps no distances"
    assay.evaluate(digits_model, "digits/test[:20]", suite="fgsm", eps=0.0, save="robust")
    with pytest.raises(NothingToTest, match="robust holds no failures"):
        assay.export("robust")


def test_images_by_true_label_with_an_index(found: Found) -> None:
    folder, cases = assay.export("shown", to="images", out="pictures")
    failures = found.load()
    rows = index_of(folder)
    assert len(rows) == cases == len(failures)
    for i in (0, len(rows) - 1):
        row, y, pred = rows[i], int(failures.y[i]), int(failures.info["pred"][i])
        assert row["file"] == f"{y}/{row['id']}.png"
        assert (row["true"], row["predicted"], row["seed"]) == (str(y), str(pred), str(int(failures.origin[i])))
        assert float(row["l2"]) == pytest.approx(float(failures.info["l2"][i]))
        pixels = torch.from_numpy(np.array(Image.open(folder / row["file"])))
        assert torch.equal(pixels, (failures.x[i, 0] * 255).round().to(torch.uint8))
    assert len(list(folder.glob("*/*.png"))) == len({row["file"] for row in rows})
    again = assay.load_data("dir:pictures")
    assert again.cases.y.bincount().tolist() == failures.y.bincount().tolist()


def test_images_of_some_classes_only_load_with_the_labels_they_had(
    found: Found, digits_model: str, tmp_path: Path
) -> None:
    (tmp_path / "some.py").write_text(
        "import torch\ndef some(bench, cases, k, *, rng):\n    'Of three classes.'\n"
        "    return torch.isin(cases.y, torch.tensor([2, 3, 6])).nonzero().flatten()[:k]\n"
    )
    count = int(torch.isin(found.load().y, torch.tensor([2, 3, 6])).sum())
    picked = select("shown", by="some.py:some", k=count)
    folder, _ = assay.export("shown", to="images", selected=picked.number)
    again = assay.load_data(f"dir:{folder}")
    assert again.spec.classes == ("2", "3", "6")
    mapped = fitted(load_target(digits_model), again)
    assert mapped.cases.y.unique(return_counts=True)[1].tolist() == picked.cases.y.bincount()[[2, 3, 6]].tolist()
    assert mapped.cases.y.unique().tolist() == [2, 3, 6]


def test_the_report_calls_cases_by_the_same_ids(found: Found) -> None:
    folder, _ = assay.export("shown", to="images")
    known = {row["id"] for row in index_of(folder)}
    assert {card["id"] for card in data_of(assay.report("shown"))["cards"]} == known


def test_equal_cases_are_one_picture_and_two_rows(tmp_path: Path) -> None:
    from assay.outputs.export import _Chosen, _images

    twice = assay.Cases.of(torch.zeros(2, 1, 2, 2), torch.tensor([1, 1]))
    _images(tmp_path / "out", _Chosen.named(twice, ("a", "b")))
    assert [row["seed"] for row in index_of(tmp_path / "out")] == ["0", "1"]
    assert [path.parent.name for path in (tmp_path / "out").glob("*/*.png")] == ["b"]


def test_parquet_keeps_rows_flat_and_tells_their_shape(found: Found) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path, cases = assay.export("shown", to="parquet")
    table = parquet.read_table(path)
    failures = found.load()
    assert table.num_rows == cases == len(failures)
    facts = json.loads(table.schema.metadata[b"assay"])
    assert facts == {"shape": [1, 8, 8], "classes": [str(i) for i in range(10)]}
    x = torch.tensor(table["x"].to_pylist()).view(-1, *facts["shape"])
    assert torch.equal(x, failures.x)
    assert torch.equal(torch.tensor(table["seed_x"].to_pylist()), failures.info["seed_x"].flatten(1))
    assert table["pred"].to_pylist() == failures.info["pred"].tolist()
    assert table["id"].to_pylist() == case_ids(failures)


def test_without_pyarrow_one_sentence_says_what_to_install(
    found: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    before = listing(tmp_path)
    with pytest.raises(UsageError, match=r"pip install 'assay\[parquet\]'"):
        assay.export("shown", to="parquet")
    assert listing(tmp_path) == before, "nothing half written is left"


@pytest.mark.parametrize(
    ("classes", "folders"),
    [
        (("../../up", "a/b"), {"0-_up", "1-a_b"}),
        (("Cat", "cat"), {"0-Cat", "1-cat"}),
        (("nul", "x\ny"), {"0-nul", "1-x_y"}),
        (("unlabelled", "dog"), {"0-unlabelled", "1-dog"}),
        (("cat", "dog"), {"cat", "dog"}),
    ],
)
def test_names_of_classes_stay_inside_the_folder(tmp_path: Path, classes: tuple[str, str], folders: set[str]) -> None:
    x = torch.linspace(0.45, 0.55, 40).view(-1, 1, 1, 1).repeat(1, 1, 2, 2)
    data = Data(
        "line", assay.Cases.of(x, (x.flatten(1).mean(1) > 0.5).long()), InputSpec((1, 2, 2), (0.0, 1.0), classes)
    )

    class Threshold(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            level = x.flatten(1).mean(1, keepdim=True)
            return torch.cat([0.5 - level, level - 0.5], 1)

    assay.fuzz("noise", Threshold(), data, run="a", eps=0.2)
    (tmp_path / "deep").mkdir()
    folder, _ = assay.export("a", to="images", out="deep/out")
    assert set(listing(folder)) == {*folders, "index.csv"}
    assert listing(tmp_path / "deep") == ["out"]
    assert {row["true"] for row in index_of(folder)} == set(classes), "the index has the names as they are"


def test_nothing_that_exists_is_overwritten(found: Found, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.npz").symlink_to(tmp_path / "nowhere")
    for to, out in (("npz", "a.npz"), ("images", "folder"), ("npz", "link.npz")):
        with pytest.raises(UsageError, match="exists and is not overwritten"):
            assay.export("shown", to=to, out=out)
    assert (tmp_path / "a.npz").read_text() == "mine"
    assert listing(tmp_path / "folder") == []
    assert not (tmp_path / "nowhere").exists()


def test_mistakes_are_told(found: Found) -> None:
    for arguments, told in (
        ({"to": "npy"}, "unknown format 'npy'; did you mean 'npz'"),
        ({"to": "npz", "out": "a.parquet"}, r"ends in \.npz, got 'a\.parquet'"),
        ({"to": "npz", "out": "no/such/a.npz"}, "no such folder: no/such"),
        ({"to": "npz", "out": found.run / "state" / "a.npz"}, "lies in the run folder"),
    ):
        with pytest.raises(UsageError, match=told):
            assay.export("shown", **arguments)


def test_vectors_are_no_images() -> None:
    x = torch.linspace(0.3, 0.7, 40)[:, None].repeat(1, 2)
    data = Data("line", assay.Cases.of(x, (x.mean(1) > 0.5).long()), InputSpec((2,), (0.0, 1.0), ("low", "high")))
    net = torch.nn.Linear(2, 2)
    assay.fuzz("noise", net, data, run="flat", eps=0.4, changes={"seeds": "all"})
    with pytest.raises(UsageError, match=r"shape \(2,\) are no images; export them with --to npz"):
        assay.export("flat", to="images")
    assert assay.export("flat").cases > 0
