"""``timm:`` models with the real timm; weights are made here and asked for from a hub on this machine."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file

import assay
from assay.cli import run
from assay.core.errors import UsageError
from assay.subjects.sources.hub import pinned, view_of
from assay.subjects.sources.load import load_target
from fake_hub import FakeHub
from hub_models import lively, picture

NAME, TAGGED = "test_resnet", "test_resnet.r160_in1k"


@pytest.fixture(scope="module")
def net() -> Any:
    import timm

    torch.manual_seed(0)
    return lively(timm.create_model(NAME, pretrained=False))


def weights(net: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.contiguous() for name, tensor in net.state_dict().items()}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for i, name in enumerate(("n01440764", "n01443537", "n01484850")):
        (tmp_path / "images" / name).mkdir(parents=True)
        picture(i, 190, 230).save(tmp_path / "images" / name / "one.png")
    return tmp_path / "images"


def test_weights_of_the_hub_answer_as_timm_itself(hub: FakeHub, net: Any, images: Path) -> None:
    import timm

    repo = hub.add(f"timm/{TAGGED}", {"model.safetensors": save(weights(net)), "pytorch_model.bin": b"never read"})
    text = f"timm:{TAGGED}"
    data = assay.load_data(f"dir:{images}", like=text)
    target = load_target(text, data=data, device="cpu")
    setting = timm.data.resolve_model_data_config(net)
    theirs = timm.data.create_transform(**setting, is_training=False)
    with torch.no_grad():
        want = net(torch.stack([theirs(picture(i, 190, 230)) for i in range(3)]))
    torch.testing.assert_close(target(data.cases.x), want, atol=1e-4, rtol=1e-4)
    assert (want[0] - want[1]).abs().max() > 0.02  # they do differ
    assert target.spec.shape == tuple(setting["input_size"])
    assert pinned(f"timm:{NAME}") == f"timm:{TAGGED}@{repo.refs['main']}"
    assert not any("pytorch_model.bin" in line for line in hub.asked)


def test_classes_of_imagenet_are_called_as_the_data_call_them(hub: FakeHub, net: Any, images: Path) -> None:
    hub.add(f"timm/{TAGGED}", {"model.safetensors": save(weights(net))})
    from assay.engines.subject import load_subject

    target, data, _ = load_subject(f"timm:{TAGGED}", f"dir:{images}", device="cpu")
    assert target.spec.classes[:2] == ("n01440764", "n01443537")
    assert data.cases.y.tolist() == [0, 1, 2]
    plain = load_target(f"timm:{TAGGED}", device="cpu")
    assert plain.spec.classes[0].startswith("tench")
    assert len(plain.spec.classes) == 1000


def test_a_part_of_imagenet_keeps_the_places_of_its_classes(hub: FakeHub, net: Any, tmp_path: Path) -> None:
    hub.add(f"timm/{TAGGED}", {"model.safetensors": save(weights(net))})
    from assay.engines.subject import load_subject

    for name in ("n02979186", "n03000684"):  # of imagenette: 482 and 491 of 1000
        (tmp_path / "some" / name).mkdir(parents=True)
        picture(1, 190, 190).save(tmp_path / "some" / name / "one.png")
    _, data, _ = load_subject(f"timm:{TAGGED}", f"dir:{tmp_path / 'some'}", device="cpu")
    assert data.cases.y.tolist() == [482, 491]


def test_a_file_of_ones_own_tells_how_many_classes_there_are(tmp_path: Path) -> None:
    import timm

    small = timm.create_model(NAME, num_classes=10).eval()
    save_file(weights(small), tmp_path / "w.safetensors")
    target = load_target(f"timm:{NAME}@{tmp_path / 'w.safetensors'}", device="cpu")
    assert len(target.spec.classes) == 10
    x = torch.rand(2, *target.spec.shape)
    mean, std = (torch.tensor(small.pretrained_cfg[k]).view(1, 3, 1, 1) for k in ("mean", "std"))
    with torch.no_grad():
        torch.testing.assert_close(target(x), small((x - mean) / std))
    # The same as plain weights in a .pt; code in one is refused by torch's own reader (tests/attacks).
    torch.save(small.state_dict(), tmp_path / "w.pt")
    assert load_target(f"timm:{NAME}@{tmp_path / 'w.pt'}", device="cpu").fingerprint() == target.fingerprint()


def test_brackets_are_parameters_of_timm(tmp_path: Path) -> None:
    import timm

    small = timm.create_model("test_vit", num_classes=4, img_size=32, in_chans=1)
    save_file(weights(small), tmp_path / "w.safetensors")
    text = f"timm:test_vit(img_size=32, in_chans=1)@{tmp_path / 'w.safetensors'}"
    target = load_target(text, device="cpu", mean=(0.5,), std=(0.5,))
    assert target.spec.shape == (1, 32, 32)
    view = view_of(text)
    assert view is not None
    assert view(picture(0, 50, 60)).shape == (1, 32, 32)
    x = torch.rand(2, 1, 32, 32, requires_grad=True)  # attention that is not fused has second derivatives
    (first,) = torch.autograd.grad(target(x).logsumexp(1).sum(), x, create_graph=True)
    assert torch.autograd.grad(first.norm(), x)[0].abs().max() > 0


def test_a_folder_that_timm_wrote(tmp_path: Path, net: Any) -> None:
    import timm

    small = timm.create_model(NAME, num_classes=3).eval()
    told = {"label_names": ["cat", "dog", "owl"], "num_classes": 3, "input_size": [3, 64, 64]}
    timm.models.save_for_hf(small, tmp_path / "folder", model_config=told, safe_serialization=True)
    target = load_target(f"timm:{tmp_path / 'folder'}", device="cpu")
    assert target.spec.classes == ("cat", "dog", "owl")
    (tmp_path / "folder" / "model.safetensors").rename(tmp_path / "folder" / "pytorch_model.bin")
    with pytest.raises(UsageError, match="pickled ones are not loaded"):
        load_target(f"timm:{tmp_path / 'folder'}", device="cpu")


def test_a_repository_of_somebody_with_a_net_of_timm(hub: FakeHub, tmp_path: Path) -> None:
    import timm

    from fake_hub import files_in

    small = timm.create_model(NAME, num_classes=3).eval()
    timm.models.save_for_hf(small, tmp_path / "folder", safe_serialization=True)
    repo = hub.add("me/net", files_in(tmp_path / "folder"))
    text = pinned("timm:me/net")
    assert text == f"timm:me/net@{repo.refs['main']}"
    own = load_target(f"timm:{tmp_path / 'folder'}", device="cpu")
    assert load_target(text, device="cpu").fingerprint() == own.fingerprint()


def test_data_of_another_size_are_told(hub: FakeHub, net: Any, caplog: pytest.LogCaptureFixture) -> None:
    hub.add(f"timm/{TAGGED}", {"model.safetensors": save(weights(net))})
    data = assay.load_data((torch.rand(4, 3, 64, 64), torch.arange(4)))
    target = load_target(f"timm:{TAGGED}", data=data, device="cpu")
    assert target.spec.shape == (3, 64, 64)
    assert "was made for images of 160×160, the data have 64×64" in caplog.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("timm:resnt18", "did you mean 'resnet18'?"),
        ("timm:test_resnet.a1", "timm has no weights 'a1' of test_resnet"),
        (f"timm:{TAGGED}", f"there is no model timm/{TAGGED} on the hub"),
        ("timm:test_resnet(num_classes=10)", "it is for weights of your own"),
        ("timm:test_resnet(depths=1)@w.safetensors", "cannot be built"),
        ("timm:test_resnet@none.safetensors", "no such checkpoint"),
        ("timm:", "names no model"),
        ("timm:./none", "holds no config.json"),
        ("timm:./odd", "cannot be built: AttributeError"),
    ],
)
def test_what_cannot_be_loaded_is_told(
    text: str, words: str, hub: FakeHub, net: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file(weights(net), "w.safetensors")
    Path("odd").mkdir()
    Path("odd", "config.json").write_text('{"architecture": "test_resnet", "pretrained_cfg": 5}')
    assert run(["eval", text, "--data", "digits/test[:4]", "--eps", "0.1", "--device", "cpu"]) == 4
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_pickled_weights_on_the_hub_are_refused(hub: FakeHub) -> None:
    hub.add(f"timm/{TAGGED}", {"pytorch_model.bin": b"a pickle"})
    with pytest.raises(UsageError, match=r"no weights as safetensors .*could run code"):
        load_target(f"timm:{TAGGED}", device="cpu")


def test_eval_and_fuzz_as_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np
    import timm

    torch.manual_seed(0)
    save_file(weights(timm.create_model(NAME, num_classes=3)), tmp_path / "w.safetensors")
    rng = np.random.default_rng(0)
    x, y = rng.random((12, 3, 32, 32), dtype=np.float32), np.arange(12) % 3
    np.savez(tmp_path / "d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    model = f"timm:{NAME}@{tmp_path / 'w.safetensors'}"
    arguments = [model, "--data", f"{tmp_path / 'd.npz'}", "--device", "cpu", "--json"]
    assert run(["eval", *arguments, "--eps", "8/255"]) == 0
    assert json.loads(capsys.readouterr().out)["protocol"]["model"] == model
    assert run(["fuzz", *arguments, "--recipe", "robot", "--run", "r", "--cases", "50"]) == 0
    assert json.loads(capsys.readouterr().out)["cases"] > 0
    assert run(["coverage", *arguments, "--by", "nc"]) == 0
