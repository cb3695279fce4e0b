"""Model files made to hurt: no code runs, memory stays within what the file takes, and the message says what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import assay
from assay.core.errors import PASSED, USAGE, UsageError
from bad_models import ATTACKS, GIGA, header, tensor, trained_with_code, wild_facts, zip_bomb
from bad_runs import evil_file
from commands import MEASURED, Nursery, Result

pytestmark = pytest.mark.slow

SLACK = 96 << 20  # what a loader may take for itself, beside twice the file
WAYS = ("save", "Save", "train", "fetch", "download", "truncated", "do not fit")  # what a message tells to do, or why


Measure = Callable[..., tuple[Result, int]]


@pytest.fixture
def measured(home: Nursery, tmp_path: Path) -> Measure:
    """A command and the most memory it had."""

    def run(*arguments: str) -> tuple[Result, int]:
        file = tmp_path / "memory"
        done = home.run(*arguments, before=MEASURED.format(file=str(file)))
        return done, int(file.read_text())

    return run


@pytest.fixture(scope="module")
def ordinary(home: Nursery, digits_model: str, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The memory of an ordinary load."""
    file = tmp_path_factory.mktemp("ordinary") / "memory"
    home.run(*asked(digits_model), before=MEASURED.format(file=str(file))).ended(PASSED)
    return int(file.read_text())


def asked(model: str) -> tuple[str, ...]:
    return ("eval", model, "--data", "digits/test[:5]", "--suite", "fgsm", "--eps", "0.1", "--json")


@pytest.mark.parametrize(("make", "suffix"), ATTACKS, ids=lambda given: getattr(given, "__name__", given))
def test_a_hostile_checkpoint_is_refused(
    make: Callable[[Path, Path], None], suffix: str, measured: Measure, ordinary: int, tmp_path: Path
) -> None:
    canary, path = tmp_path / "canary", tmp_path / f"w{suffix}"
    make(path, canary)
    net = "mlp" if make is wild_facts else "lenet5"
    done, memory = measured(*asked(f"{net}@{path}"))
    done.ended(USAGE, str(path))
    assert any(way in done.said for way in WAYS), done.said
    assert not canary.exists()
    on_disk = path.stat().st_blocks * 512 if path.is_file() else 0
    assert memory - ordinary < 2 * on_disk + SLACK
    with pytest.raises(UsageError) as told:  # the same by the API
        assay.load_target(f"{net}@{path}", data=assay.load_data("digits/test[:5]"))
    assert str(told.value) in done.said
    assert not canary.exists()


def test_the_canary_sings_where_code_is_asked_for(home: Nursery, tmp_path: Path) -> None:
    """``file.py:function`` runs code by design; so does the canary, or the tests above would prove nothing."""
    Path("net.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'canary')!r}).touch()\nmake = None\n")
    zip_bomb(Path("w.pt"), tmp_path)
    Path("w.safetensors").write_bytes(header({"a": tensor([1], 0, 4)}, bytes(4)))
    home.run(*asked("net.py:make@w.safetensors")).ended(USAGE, "expected a torch.nn.Module")
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize("suite", ["seen", "unseen"])
def test_code_that_a_file_says_it_was_trained_with_is_not_run(
    home: Nursery, digits_weights: Path, suite: str, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    trained_with_code(tmp_path / "w.safetensors", digits_weights, evil_file(tmp_path, canary))
    given = ("--data", "digits/test[:4]", "--suite", suite, "--eps", "0.1")
    home.run("eval", f"lenet5@{tmp_path / 'w.safetensors'}", *given).ended(USAGE, "which is code and not run", "--seen")
    assert not canary.exists()


def test_other_places_where_weights_come_in(
    measured: Measure, ordinary: int, digits_model: str, tmp_path: Path
) -> None:
    """Histories, generators of images, extractors' archives."""
    history = tmp_path / "w.history"
    history.mkdir()
    zip_bomb(history / "epoch-0001.pt", tmp_path)
    shutil.copy(digits_model.partition("@")[2], tmp_path / "w.safetensors")
    model, data = f"lenet5@{tmp_path / 'w.safetensors'}", ("--data", "digits/test[:5]")
    wild_facts(tmp_path / "aeg.safetensors", tmp_path)
    told = {"kind": "aeg", "making": {"width": 10**7}, "shape": [3, 4096, 4096], "bounds": [0, 1]}
    meta = {"assay": json.dumps(told)}
    two = {"there": tensor([1, 1], 0, 4), "back": tensor([1, 1], 4, 8)}
    (tmp_path / "wide.safetensors").write_bytes(header({"__metadata__": meta, **two}, bytes(8)))
    bomb_of_arrays(tmp_path / "vgg19.npz")
    fuzz = ("fuzz", model, *data, "--recipe", "cagfuzz", "--cases", "5", "--run", "x")
    harden = ("harden", model, "--data", "digits", "--recipe", "dare", "--until", "fgsm>=0.9", "--eps", "0.1")
    for arguments, word in (
        ((*fuzz, "--set", f"mutate.of.aeg={tmp_path / 'aeg.safetensors'}"), "aeg.safetensors"),
        ((*fuzz, "--set", f"mutate.of.aeg={tmp_path / 'wide.safetensors'}"), "wide.safetensors"),
        ((*fuzz, "--set", f'mutate.features="vgg19(weights={tmp_path / "vgg19.npz"})"'), "vgg19.npz"),
        ((*harden, "--history", str(history)), "epoch-0001.pt"),
    ):
        done, memory = measured(*arguments)
        done.ended(USAGE, word)
        assert memory - ordinary < SLACK, word


def bomb_of_arrays(path: Path) -> None:
    """An archive of zeros, a thousand times what it takes on the disk."""
    import zipfile

    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        told = {"descr": "<f4", "fortran_order": False, "shape": (3 * GIGA // 256, 64)}
        np.lib.format.write_array_header_1_0(member, told)
        for _ in range(3 * 64):
            member.write(bytes(16 << 20))


def test_a_bomb_of_data_is_refused_before_it_is_unpacked(
    measured: Measure, ordinary: int, digits_model: str, tmp_path: Path
) -> None:
    bomb_of_arrays(tmp_path / "data.npz")
    done, memory = measured(
        "eval", digits_model, "--data", str(tmp_path / "data.npz"), "--suite", "fgsm", "--eps", "0.1"
    )
    done.ended(USAGE, "data.npz", "times")
    assert memory - ordinary < SLACK


def test_a_damaged_cache_is_made_anew(home: Nursery, digits_model: str, tmp_path: Path) -> None:
    """Entries of the cache are believed by their digest, and tell nothing but numbers even where it fits."""
    given = ("prioritise", digits_model, "--pool", "digits/test[:20]", "--by", "dsa", "--json")
    first = home.run(*given).ended(PASSED)
    for path in (tmp_path / "cache").rglob("*.safetensors"):
        path.write_bytes(header({"a": tensor([1 << 40], 0, 4 << 40)}, bytes(16)))
    again = home.run(*given).ended(PASSED)
    assert [each["rows"] for each in again.json["methods"]] == [each["rows"] for each in first.json["methods"]]


def test_onnx_files_lead_nowhere(measured: Measure, ordinary: int, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(4 * 640))
    folder = tmp_path / "model"
    folder.mkdir()
    for location in (str(secret), "../secret", "link"):
        (folder / "link").unlink(missing_ok=True)
        (folder / "link").symlink_to(secret)
        _onnx(onnx, folder / "m.onnx", location, [64, 10])
        done, _ = measured(*asked(str(folder / "m.onnx")))
        done.ended(USAGE, "m.onnx", "beside it")
    (folder / "weights").write_bytes(bytes(16))
    _onnx(onnx, folder / "m.onnx", "weights", [1 << 20, 1 << 20])  # four terabytes, it says
    done, memory = measured(*asked(str(folder / "m.onnx")))
    done.ended(USAGE, "m.onnx")
    assert memory - ordinary < SLACK + (200 << 20)  # onnxruntime itself


def _onnx(onnx: object, path: Path, location: str, shape: list[int]) -> None:
    from onnx import TensorProto, helper

    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    entry = weight.external_data.add()
    entry.key, entry.value = "location", location
    given, out = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", w]) for n, w in (("x", 64), ("y", 10)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [given], [out], [weight])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


def test_torch_is_of_a_kind_whose_reader_is_sound() -> None:
    """The weights-only reader had holes before 2.6 (CVE-2025-32434) and 2.10 (CVE-2026-24747)."""
    assert tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 10)
