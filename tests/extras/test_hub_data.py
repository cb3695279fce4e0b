"""``hf:`` data with the real datasets library: from a hub on this machine, from folders, as streams."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import assay
from assay.cli import run
from assay.core.errors import NothingToTest, UsageError
from assay.subjects.data import hub as hub_data
from assay.subjects.data.load import load_data, load_splits, training_of
from fake_hub import FakeHub
from hub_models import ANIMALS, animals, parquet, picture, vit

HELPERS = Path(__file__).parent.parent / "helpers"


def files(tmp_path: Path, **parts: Any) -> dict[str, bytes]:
    return {
        f"data/{name}-00000-of-00001.parquet": parquet(table, tmp_path / f"{name}.parquet")
        for name, table in parts.items()
    }


@pytest.fixture
def set_on_hub(hub: FakeHub, tmp_path: Path) -> Any:
    return hub.add("me/animals", files(tmp_path, train=animals(9), test=animals(6, first=50)), "datasets")


def pixels(seeds: Any, size: tuple[int, int] = (20, 30)) -> np.ndarray[Any, Any]:
    return np.stack([np.asarray(picture(i, *size)).transpose(2, 0, 1) for i in seeds])


def test_pixels_labels_and_names_are_those_of_the_set(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("me/even", files(tmp_path, test=animals(6, even=True)), "datasets")
    data = load_data("hf:me/even/test")
    assert data.spec.classes == ANIMALS
    assert data.cases.y.tolist() == [0, 1, 2, 0, 1, 2]
    assert np.array_equal((data.cases.x * 255).round().numpy().astype(np.uint8), pixels(range(6)))


def test_the_commit_is_pinned_in_the_source(hub: FakeHub, set_on_hub: Any, tmp_path: Path) -> None:
    first = set_on_hub.refs["main"]
    data = load_data("hf:me/animals/test[:4]", size="8")
    assert data.source == f"hf:me/animals@{first}/test[:4]"
    assert data.name == data.source
    set_on_hub.commit(files(tmp_path, test=animals(6, first=80)))
    assert load_data("hf:me/animals/test[:4]", size="8").fingerprint() != data.fingerprint()
    again = load_data(data.source, size="8")
    assert (again.fingerprint(), again.source) == (data.fingerprint(), data.source)


def test_rows_are_cut_as_of_any_data(set_on_hub: Any) -> None:
    whole = load_data("hf:me/animals/train", size="8")
    for cut, rows in (("[2:7:2]", [2, 4, 6]), ("[-3:]", [6, 7, 8]), ("[5:]", [5, 6, 7, 8])):
        part = load_data(f"hf:me/animals/train{cut}", size="8")
        assert part.cases.origin.tolist() == rows
        assert torch.equal(part.cases.x, whole.cases.x[rows])


def test_a_large_set_is_read_as_a_stream_only_as_far_as_it_is_asked_for(
    hub: FakeHub, set_on_hub: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small = load_data("hf:me/animals/train[1:4]", size="8")
    monkeypatch.setattr(hub_data, "_SMALL", 0)
    with caplog.at_level("INFO", "assay"):
        streamed = load_data("hf:me/animals/train[1:4]", size="8")
    assert "read as a stream" in caplog.text
    assert streamed.fingerprint() == small.fingerprint()
    assert streamed.cases.origin.tolist() == [1, 2, 3]


def test_parts_go_by_their_usual_names(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("me/parts", files(tmp_path, train=animals(6), validation=animals(3, first=20)), "datasets")
    assert len(load_data("hf:me/parts/val", size="8")) == 3
    assert len(load_data("hf:me/parts/validation", size="8")) == 3
    splits = load_splits("hf:me/parts", size="8")
    assert splits.test is None
    assert splits.val is not None
    assert splits.train is not None
    training = training_of(load_data("hf:me/parts/val", size="8"))
    assert training is not None
    assert training.fingerprint() == splits.train.fingerprint()  # as large as the data it is asked for


def test_images_come_as_the_model_wants_them(set_on_hub: Any, tmp_path: Path) -> None:
    from transformers import AutoImageProcessor

    folder = vit(tmp_path / "vit")
    data = load_data("hf:me/animals/test", like=f"hf:{folder}")
    theirs = AutoImageProcessor.from_pretrained(folder, backend="pil")
    want = theirs(images=[picture(50 + i, 20 + (50 + i) % 3) for i in range(6)], return_tensors="pt")["pixel_values"]
    torch.testing.assert_close((data.cases.x - 0.5) / 0.5, want, atol=1e-5, rtol=0)
    resized = load_data("hf:me/animals/test", like=f"hf:{folder}", size="24x20")
    assert resized.spec.shape == (3, 24, 20)


def test_grey_images_become_what_the_model_takes(hub: FakeHub, tmp_path: Path) -> None:
    import datasets

    grey = datasets.Dataset.from_dict(
        {"image": [picture(i, mode="L") for i in range(3)], "label": [0, 1, 2]},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(ANIMALS))}),
    )
    hub.add("me/grey", files(tmp_path, test=grey), "datasets")
    assert load_data("hf:me/grey/test").spec.shape == (1, 20, 30)
    assert load_data("hf:me/grey/test", like=f"hf:{vit(tmp_path / 'vit')}").spec.shape == (3, 16, 16)


def test_folders_of_both_kinds(tmp_path: Path) -> None:
    import datasets

    table = animals(6, even=True)
    datasets.DatasetDict({"train": table, "test": table}).save_to_disk(tmp_path / "saved")
    table.save_to_disk(tmp_path / "one")
    (tmp_path / "parquet").mkdir()
    table.to_parquet(tmp_path / "parquet" / "test.parquet")
    os.chdir(tmp_path)
    found = [load_data(f"hf:./{where}") for where in ("saved/test", "one", "parquet/test")]
    assert len({data.fingerprint() for data in found}) == 1
    assert found[0].source == "hf:./saved/test"
    assert load_data(found[2].source).fingerprint() == found[0].fingerprint()


def test_columns_are_found_or_named(hub: FakeHub, tmp_path: Path) -> None:
    import datasets

    names = datasets.ClassLabel(names=["a", "b"])
    columns = {"id": [1, 2], "photo": [picture(0), picture(1)], "coarse": [0, 1], "fine": [1, 0], "word": ["z", "y"]}
    features = datasets.Features(
        {"id": datasets.Value("int64"), "photo": datasets.Image(), "coarse": names, "fine": names,
         "word": datasets.Value("string")}
    )  # fmt: skip
    hub.add("me/many", files(tmp_path, test=datasets.Dataset.from_dict(columns, features=features)), "datasets")
    with pytest.raises(
        UsageError, match=r"several columns of class \(coarse, fine\); name one: hf:me/many\(label=coarse"
    ):
        load_data("hf:me/many/test")
    assert load_data("hf:me/many(label=fine)/test").cases.y.tolist() == [1, 0]
    words = load_data("hf:me/many(label=word)/test")
    assert (words.spec.classes, words.cases.y.tolist()) == (("y", "z"), [1, 0])
    assert "(label=word)/test" in words.source
    with pytest.raises(UsageError, match="no column 'fin'; did you mean 'fine'"):
        load_data("hf:me/many(label=fin)/test")


def test_images_that_cannot_be_read_are_left_out_and_told(
    hub: FakeHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import io

    import datasets

    good = io.BytesIO()
    picture(0).save(good, "PNG")
    rows = [{"bytes": good.getvalue(), "path": None}, {"bytes": b"no image", "path": None},
            {"bytes": None, "path": "/etc/hostname"}]  # fmt: skip
    table = datasets.Dataset.from_dict(
        {"image": rows, "label": [0, 1, 2]},
        features=datasets.Features(
            {"image": datasets.Image(decode=False), "label": datasets.ClassLabel(names=list(ANIMALS))}
        ),
    )
    hub.add("me/bad", files(tmp_path, test=table), "datasets")
    data = load_data("hf:me/bad/test")
    assert data.cases.origin.tolist() == [0]
    assert "row 2: it names a file that is not of the set" in caplog.text


def test_a_set_in_a_folder_reads_no_file_outside_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import datasets

    picture(0).save(tmp_path / "private.png")
    (tmp_path / "d").mkdir()
    picture(1).save(tmp_path / "d" / "own.png")
    paths = [str(tmp_path / "d" / "own.png"), str(tmp_path / "private.png"), str(tmp_path / "d" / ".." / "private.png")]
    table = datasets.Dataset.from_dict(
        {"image": [{"bytes": None, "path": path} for path in paths], "label": [0, 1, 2]},
        features=datasets.Features(
            {"image": datasets.Image(decode=False), "label": datasets.ClassLabel(names=list(ANIMALS))}
        ),
    )
    table.to_parquet(str(tmp_path / "d" / "test-00000-of-00001.parquet"))
    data = load_data(f"hf:{tmp_path / 'd'}/test")
    assert data.cases.origin.tolist() == [0]
    assert caplog.text.count("it names a file that is not of the set") == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hf:me/none/test", "there is no data set me/none on the hub"),
        ("hf:me/animals@none/test", "me/animals has no revision 'none'"),
        ("hf:me/animals/tset", "has no part 'tset'; did you mean 'test'?"),
        ("hf:me/gated/test", "me/gated is gated"),
        ("hf:me/coded/test", "me/coded"),
        ("hf:me/animals/test", "images differ in size"),
        ("hf:animals", "is no data set of the hub"),
        ("hf:./none/test", "no such folder"),
        ("hf:me/animals(colum=x)/test", "no parameter 'colum'"),
        ("hf:me/animals/test[:0]", "holds no case"),
    ],
)
def test_what_cannot_be_loaded_is_told(
    text: str, words: str, hub: FakeHub, set_on_hub: Any, capsys: pytest.CaptureFixture[str], digits_model: str
) -> None:
    hub.add("me/gated", {"data/test.parquet": b""}, "datasets").gated = True
    hub.add("me/coded", {"coded.py": b"open('ran', 'w')"}, "datasets")
    code = run(["eval", digits_model, "--data", text, "--eps", "0.1", "--device", "cpu"])
    assert code == (5 if "no case" in words else 4)
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert not Path("ran").exists()


def test_several_sets_in_one_repository(hub: FakeHub, tmp_path: Path) -> None:
    one, two = (parquet(animals(n, even=True), tmp_path / f"{n}.parquet") for n in (3, 6))
    card = """---
configs:
- config_name: small
  data_files: [{split: test, path: small/*}]
- config_name: large
  data_files: [{split: test, path: large/*}]
---
"""
    parts = {"small/a.parquet": one, "large/a.parquet": two, "README.md": card.encode()}
    hub.add("me/both", parts, "datasets")
    assert len(load_data("hf:me/both/large/test")) == 6
    assert load_data("hf:me/both/small/test").source.endswith("/small/test")
    with pytest.raises(UsageError, match=r"me/both is several sets \(.*name one: hf:me/both/"):
        load_data("hf:me/both/test")


def test_more_than_memory_holds_is_refused(set_on_hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_data, "_SHARE", 1e-8)
    with pytest.raises(UsageError, match=r"more than half of this machine's memory .*take some of it"):
        load_data("hf:me/animals/train", size="64")
    assert training_of(load_data("digits/test[:2]")) is not None  # others are not asked


def test_a_set_without_labels(hub: FakeHub, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import datasets

    table = datasets.Dataset.from_dict({"image": [picture(0)]}, features=datasets.Features({"image": datasets.Image()}))
    hub.add("me/bare", files(tmp_path, test=table), "datasets")
    assert load_data("hf:me/bare/test").cases.y.tolist() == [-1]
    assert "have no labels" in caplog.text
    with pytest.raises(NothingToTest, match="no labels"):
        assay.evaluate(lambda x: np.full((len(x), 2), 0.5), "hf:me/bare/test", suite="square", eps=0.1)


def test_the_run_names_the_commit_and_goes_on_by_the_same_words(
    set_on_hub: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = f"hf:{vit(tmp_path / 'vit')}"
    arguments = ["fuzz", model, "--data", "hf:me/animals/train", "--recipe", "noise", "--run", "r", "--device", "cpu"]
    assert run([*arguments, "--cases", "50", "--json"]) == 0
    assert f"hf:me/animals@{set_on_hub.refs['main']}/train" in (tmp_path / "runs/r/campaign.toml").read_text()
    capsys.readouterr()
    assert run([*arguments, "--cases", "90", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cases"] >= 90


def test_offline_what_was_fetched_is_used_and_nothing_else(hub: FakeHub, set_on_hub: Any, tmp_path: Path) -> None:
    hub.add("me/vit", vit(tmp_path / "vit"))
    told = [_typed(tmp_path, "hf:me/vit", "hf:me/animals/test", offline=False)]
    hub.asked.clear()
    told.append(_typed(tmp_path, "hf:me/vit", "hf:me/animals/test", offline=True))
    assert hub.asked == []
    assert [each.returncode for each in told] == [0, 0], told[1].stderr
    one, two = (json.loads(each.stdout)["protocol"] for each in told)
    assert (one["model"], one["data_fingerprint"]) == (two["model"], two["data_fingerprint"])
    missing = _typed(tmp_path, "hf:me/other", "hf:me/animals/test", offline=True)
    assert missing.returncode == 4
    assert "me/other is not wholly in the cache of the hub, and HF_HUB_OFFLINE is set" in missing.stderr


def _typed(folder: Path, model: str, data: str, *, offline: bool) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own: the libraries read their settings when they are imported."""
    code = "import placeholder_operators, sys; from assay.__main__ import main; sys.exit(main())"
    words = ["eval", model, "--data", data, "--eps", "0.1", "--suite", "fgsm", "--device", "cpu", "--json"]
    path = os.pathsep.join([str(HELPERS), os.environ["PYTHONPATH"]])
    setting = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | ({"HF_HUB_OFFLINE": "1"} if offline else {})
    return subprocess.run([sys.executable, "-c", code, *words], cwd=folder, env=setting, capture_output=True, text=True)
