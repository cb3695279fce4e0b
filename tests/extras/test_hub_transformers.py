"""``hf:`` models, made here with the real transformers and asked for from a hub on this machine."""

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import assay
from assay.cli import run
from assay.core.errors import UsageError
from assay.subjects.sources.hub import pinned, view_of
from assay.subjects.sources.load import load_target, module_of
from fake_hub import FakeHub, files_in
from hub_models import ANIMALS, animals, picture, vit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vit(tmp_path_factory.mktemp("hf") / "vit")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import datasets

    place = tmp_path_factory.mktemp("hf") / "animals"
    datasets.DatasetDict({"train": animals(24), "test": animals(12, first=100)}).save_to_disk(place)
    return place


def processors() -> list[Any]:
    from transformers import CLIPImageProcessor, ConvNextImageProcessor, EfficientNetImageProcessor, ViTImageProcessor

    odd = {"image_mean": [0.48, 0.45, 0.4], "image_std": [0.22, 0.25, 0.3]}
    return [
        ViTImageProcessor(size={"height": 16, "width": 16}),
        ViTImageProcessor(size={"height": 16, "width": 16}, do_normalize=False),
        CLIPImageProcessor(size={"shortest_edge": 20}, crop_size={"height": 16, "width": 16}, **odd),
        ConvNextImageProcessor(size={"shortest_edge": 16}, crop_pct=0.8, **odd),
        EfficientNetImageProcessor(size={"height": 16, "width": 16}, include_top=True, rescale_offset=True, **odd),
    ]


@pytest.mark.parametrize("kind", range(5))
def test_an_image_is_answered_as_by_the_library_itself(kind: int, tmp_path: Path) -> None:
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    place = vit(tmp_path / "net", processor=processors()[kind])
    for i in range(3):
        (tmp_path / "images" / ANIMALS[i]).mkdir(parents=True)
        picture(i, 37, 53).save(tmp_path / "images" / ANIMALS[i] / "one.png")
    text = f"hf:{place}"
    data = assay.load_data(f"dir:{tmp_path / 'images'}", like=text)
    target = load_target(text, data=data, device="cpu")
    assert data.spec.shape == target.spec.shape == (3, 16, 16)
    theirs = AutoImageProcessor.from_pretrained(place, backend="pil")
    net = AutoModelForImageClassification.from_pretrained(place).eval()
    with torch.no_grad():
        want = net(**theirs(images=[picture(i, 37, 53) for i in range(3)], return_tensors="pt")).logits
    got = target(data.cases.x)
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    assert (want[0] - want[1]).abs().max() > 0.02  # they do differ


def test_names_of_classes_come_from_the_configuration(folder: Path, tmp_path: Path) -> None:
    assert load_target(f"hf:{folder}", device="cpu").spec.classes == ANIMALS
    unnamed = vit(tmp_path / "unnamed", classes=("LABEL_0", "LABEL_1", "LABEL_2"))
    assert load_target(f"hf:{unnamed}", device="cpu").spec.classes == ("0", "1", "2")


def test_classes_of_data_in_another_order_are_matched_by_name(folder: Path, tmp_path: Path) -> None:
    other = vit(tmp_path / "other", classes=("owl", "cat", "dog"))
    images = tmp_path / "images"
    for i, name in enumerate(ANIMALS):
        (images / name).mkdir(parents=True)
        picture(i, 16, 16).save(images / name / "one.png")
    from assay.engines.subject import load_subject

    _, data, _ = load_subject(f"hf:{other}", f"dir:{images}", device="cpu")
    assert data.cases.y.tolist() == [1, 2, 0]
    strange = vit(tmp_path / "strange", classes=("a", "b", "c"))
    with pytest.raises(UsageError, match="does not know 'cat'"):
        load_subject(f"hf:{strange}", f"dir:{images}", device="cpu")
    _, data, _ = load_subject(f"hf:{strange}(classes=data)", f"dir:{images}", device="cpu")
    assert data.cases.y.tolist() == [0, 1, 2]


def test_it_is_a_white_box_with_second_derivatives_and_layers(folder: Path) -> None:
    target = load_target(f"hf:{folder}", device="cpu")
    x = torch.rand(2, 3, 16, 16, requires_grad=True)
    (first,) = torch.autograd.grad(target(x).logsumexp(1).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.norm(), x)
    assert first.abs().max() > 0
    assert second.abs().max() > 0
    from assay.subjects.layers import layers_of

    names = [layer.name for layer in layers_of(target, "auto").each]
    assert any(name.startswith("vit.") for name in names), names


def test_a_live_model_of_transformers_is_taken_as_it_is(folder: Path) -> None:
    from transformers import AutoModelForImageClassification

    net = AutoModelForImageClassification.from_pretrained(folder).eval()
    x, y = torch.rand(6, 3, 16, 16), torch.arange(6) % 3
    got = assay.evaluate(net, assay.load_data((x, y)), suite="fgsm", eps=0.1, device="cpu")
    assert got.clean.n == 6


def test_eval_fuzz_and_coverage_as_typed(
    folder: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = f"hf:{folder}", f"hf:{saved}/test"
    assert run(["eval", model, "--data", data, "--eps", "32/255", "--device", "cpu", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["protocol"]["n"] == 12
    common = ["--device", "cpu", "--json"]
    assert run(["fuzz", model, "--data", f"hf:{saved}/train", "--recipe", "robot", "--run", "r", *common]) == 0
    assert json.loads(capsys.readouterr().out)["seeds"] > 0
    assert run(["coverage", model, "--data", data, "--by", "nc,kmnc", *common]) == 0
    covered = json.loads(capsys.readouterr().out)
    assert "kmnc" in str(covered)


def test_hardening_keeps_weights_that_load_by_the_same_text(
    folder: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["harden", f"hf:{folder}", "--data", f"hf:{saved}", "--recipe", "robot", "--until", "robust>=0.99"]
    arguments += ["--rounds", "1", "--run", "h", "--eps", "0.1", "--time", "5s", "--device", "cpu", "--json"]
    code = run(arguments)
    told = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    hardened = load_target(f"hf:{folder}@{told['model']}", device="cpu")
    assert hardened.spec == load_target(f"hf:{folder}", device="cpu").spec
    assert f"hf:{saved}" in (tmp_path / "runs" / "h" / "campaign.toml").read_text()


def test_the_fingerprint_is_the_same_every_time_and_another_for_other_weights(folder: Path, tmp_path: Path) -> None:
    one, two = (load_target(f"hf:{folder}", device="cpu").fingerprint() for _ in range(2))
    other = load_target(f"hf:{vit(tmp_path / 'other', seed=1)}", device="cpu").fingerprint()
    assert one == two != other


def test_mean_and_std_replace_its_own(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain = load_target(f"hf:{folder}", device="cpu")
    other = load_target(f"hf:{folder}", device="cpu", mean=(0.0,), std=(1.0,))
    x = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(other((x - 0.5) / 0.5), plain(x))
    assert "which --mean and --std replace" in caplog.text


def test_a_revision_is_pinned_and_the_run_keeps_it(
    hub: FakeHub, folder: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = hub.add("me/vit", folder)
    first = repo.refs["main"]
    arguments = ["eval", "hf:me/vit", "--data", f"hf:{saved}/test", "--eps", "0.1", "--device", "cpu", "--save", "e"]
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["protocol"]["model"] == f"hf:me/vit@{first}"
    assert f"hf:me/vit@{first}" in (tmp_path / "runs" / "e" / "campaign.toml").read_text()
    second = repo.commit(files_in(vit(tmp_path / "newer", seed=5)))
    assert pinned("hf:me/vit") == f"hf:me/vit@{second}"
    assert run([*arguments, "--json"]) == 4  # the same words, another model: not the same run
    assert second in capsys.readouterr().err
    assert run(["replay", "e", "--device", "cpu", "--json"]) in (0, 1)  # asks the model of the run, not the newest
    assert json.loads(capsys.readouterr().out)
    assert run([arguments[0], f"hf:me/vit@{first}", *arguments[2:], "--json"]) == 0  # that commit continues it


def test_branches_and_tags_mean_their_commits(hub: FakeHub, folder: Path, tmp_path: Path) -> None:
    repo = hub.add("me/vit", folder)
    tagged = repo.commit(files_in(vit(tmp_path / "tagged", seed=3)), "v1")
    assert pinned("hf:me/vit@v1") == f"hf:me/vit@{tagged}"
    at_tag, at_main = (load_target(f"hf:me/vit@{rev}", device="cpu").fingerprint() for rev in ("v1", "main"))
    assert at_tag == load_target(f"hf:{tmp_path / 'tagged'}", device="cpu").fingerprint() != at_main


def test_without_the_hub_what_was_fetched_is_used(hub: FakeHub, folder: Path) -> None:
    repo = hub.add("me/vit", folder)
    before = load_target("hf:me/vit", device="cpu").fingerprint()
    hub.down = True
    assert pinned("hf:me/vit") == f"hf:me/vit@{repo.refs['main']}"
    assert load_target("hf:me/vit", device="cpu").fingerprint() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hf:me/none", "there is no model me/none on the hub"),
        ("hf:me/vit@none", "me/vit has no revision 'none'"),
        ("hf:me/gated", "me/gated is gated"),
        ("hf:me/pickled", "pickled ones are not loaded"),
        ("hf:me/coded", "needs code of its repository"),
        ("hf:me/bert", "is no image classifier"),
        ("hf:me/headless", "its head would be random"),
        ("hf:me/empty", "is it timm:me/empty?"),
        ("hf:vit", "is no repository"),
        ("hf:./none", "no such folder"),
        ("hf:me/vit(layers=3)", "no parameter 'layers'"),
        ("hf:me/vit@", "nothing stands behind the @"),
        ("hf:me/vit@a/../../b", "is no revision"),
        ("hf:./loads", "names more to load (checkpoint_path)"),
        ("hf:./elsewhere", "names more to load (architecture 'hf-hub:me/other')"),
        ("hf:./listed", "names 'evil.bin', which is no file of safetensors"),
    ],
)
def test_what_cannot_be_loaded_is_told_in_one_sentence(
    text: str, words: str, hub: FakeHub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import ViTModel

    files = files_in(folder)
    hub.add("me/vit", files)
    hub.add("me/gated", files).gated = True
    bomb = tmp_path / "ran"
    bad = pickle.dumps(_Bomb(str(bomb)))
    hub.add("me/pickled", {**{k: v for k, v in files.items() if "safetensors" not in k}, "pytorch_model.bin": bad})
    config = json.loads(files["config.json"])
    hub.add("me/coded", files | _coded(config, bomb))
    hub.add("me/bert", {"config.json": json.dumps({"model_type": "bert", "architectures": ["BertModel"]}).encode()})
    ViTModel.from_pretrained(folder).save_pretrained(tmp_path / "headless")
    hub.add("me/headless", files_in(tmp_path / "headless"))
    hub.add("me/empty", {"README.md": b"nothing"})
    for name, told in (("loads", {"model_args": {"checkpoint_path": "loads/evil.pth"}, "architecture": "resnet18"}),
                       ("elsewhere", {"architecture": "hf-hub:me/other"})):  # fmt: skip
        Path(name).mkdir()
        Path(name, "config.json").write_text(json.dumps({"model_type": "timm_wrapper", "num_classes": 3, **told}))
        Path(name, "model.safetensors").write_bytes(files["model.safetensors"])
        Path(name, "evil.pth").write_bytes(bad)
    Path("listed").mkdir()
    Path("listed", "config.json").write_bytes(files["config.json"])
    Path("listed", "model-00001-of-00001.safetensors").write_bytes(files["model.safetensors"])
    Path("listed", "evil.bin").write_bytes(bad)
    index = {"metadata": {}, "weight_map": {"classifier.weight": "evil.bin"}}
    Path("listed", "model.safetensors.index.json").write_text(json.dumps(index))
    assert run(["eval", text, "--data", "digits/test[:4]", "--eps", "0.1", "--device", "cpu"]) == 4
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert not bomb.exists()


def test_code_of_the_repository_runs_only_where_it_is_trusted(
    hub: FakeHub, folder: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_in(folder)
    hub.add("me/coded", files | _coded(json.loads(files["config.json"]), tmp_path / "ran"))
    arguments = ["eval", "hf:me/coded", "--data", f"hf:{saved}/test", "--eps", "0.1", "--device", "cpu"]
    assert run(arguments) == 4
    assert "--trust-remote-code" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
    assert run([*arguments, "--trust-remote-code", "--json"]) == 0
    assert (tmp_path / "ran").exists()
    assert run(arguments) == 4  # the trust was that command's
    assert load_target("hf:me/coded", device="cpu", trust_remote_code=True).spec.classes == ANIMALS


def test_a_run_of_somebody_else_is_not_asked_for(
    hub: FakeHub, folder: Path, saved: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    hub.add("me/vit", folder)
    arguments = [
        "fuzz",
        "hf:me/vit",
        "--data",
        f"hf:{saved}/train",
        "--recipe",
        "noise",
        "--run",
        "r",
        "--cases",
        "200",
    ]
    assert run([*arguments, "--device", "cpu", "--json"]) == 0
    capsys.readouterr()
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "another user's"))
    hub.asked.clear()
    assert run(["shrink", "r", "--device", "cpu"]) == 4
    assert "--trust-run" in capsys.readouterr().err
    assert hub.asked == []


def test_weights_of_ones_own_in_a_net_of_the_hub(hub: FakeHub, folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    repo = hub.add("me/vit", folder)
    net = load_target("hf:me/vit", device="cpu")
    weights = {name: tensor + 0.01 for name, tensor in module_of(net).net.state_dict().items()}  # type: ignore[union-attr]
    save_file(weights, tmp_path / "w.safetensors")
    text = f"hf:me/vit@{repo.refs['main']}@{tmp_path / 'w.safetensors'}"
    other = load_target(text, device="cpu")
    x = torch.rand(1, 3, 16, 16)
    assert not torch.equal(other(x), net(x))
    assert pinned(text) == text


def test_a_processor_that_does_more_than_scale_is_refused(folder: Path) -> None:
    from assay.subjects.sources.hub_specs import parse
    from assay.subjects.sources.hub_transformers import _moments

    class Gamma:
        def __call__(self, images: Any, return_tensors: str, **_: bool) -> dict[str, Any]:
            return {"pixel_values": (np.asarray(images, np.float32).transpose(2, 0, 1)[None] / 255) ** 2.2}

    with pytest.raises(UsageError, match="does more to pixels"):
        _moments(Gamma(), (3, 8, 8), parse(f"hf:{folder}"))


def test_without_a_processor_inputs_go_in_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = vit(tmp_path / "net")
    (place / "preprocessor_config.json").unlink()
    with caplog.at_level(logging.WARNING, "assay"):
        target = load_target(f"hf:{place}", device="cpu")
    assert target.spec.shape == (3, 16, 16)
    assert "inputs go in as they are" in caplog.text
    assert view_of(f"hf:{place}") is None


class _Bomb:
    """A pickle that leaves a file where it is loaded."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.place),)


def _coded(config: dict[str, Any], mark: Path) -> dict[str, bytes]:
    """Files of a repository whose net is code of its own, which leaves a mark when it is run."""
    code = f"""
from pathlib import Path
from transformers import ViTConfig, ViTForImageClassification

Path({str(mark)!r}).touch()


class OwnConfig(ViTConfig):
    model_type = "own_net"


class OwnNet(ViTForImageClassification):
    config_class = OwnConfig
"""
    places = {"AutoConfig": "own.OwnConfig", "AutoModelForImageClassification": "own.OwnNet"}
    told = config | {"model_type": "own_net", "auto_map": places, "architectures": ["OwnNet"]}
    return {"config.json": json.dumps(told).encode(), "own.py": code.encode()}
