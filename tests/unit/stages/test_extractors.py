"""Deep features: whose they are, that they are those, and how alike they are."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.errors import UsageError
from assay.stages.extractors import features_of, pretrained, reference, vgg19
from assay.stages.extractors.pretrained import image, seen_by, with_weights
from assay.stages.extractors.similarity import cosine
from assay.stages.workshop import WORKSHOP
from assay.subjects.bench import Bench, Data
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget
from assay.subjects.zoo.efficientnet import efficientnet_lite0, same_padding

INF = float("inf")


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ([3.0, 4.0], [4.0, 3.0], 0.96),
        ([1.0, 0.0], [0.0, 2.0], 0.0),
        ([1.0, 2.0], [-1.0, -2.0], -1.0),
        ([0.0, 0.0], [0.0, 0.0], 1.0),
        ([0.0, 0.0], [1.0, 0.0], 0.0),
        ([3e30, 4e30], [4e-30, 3e-30], 0.96),  # whose squares are beyond float32
        ([3e30, 0.0], [0.0, 0.0], 0.0),
        ([float("nan"), 1.0], [1.0, 1.0], -1.0),
        ([INF, 1.0], [1.0, 1.0], -1.0),
    ],
)
def test_cosine(one: list[float], other: list[float], alike: float) -> None:
    for a, b in ((one, other), (other, one)):
        assert float(cosine(torch.tensor([a]), torch.tensor([b]))) == pytest.approx(alike, abs=1e-6)


def test_cosine_of_many_with_one() -> None:
    many = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [2.0, 0.0]]])
    made = cosine(many, torch.tensor([[2.0, 0.0], [1.0, 1.0]])[:, None])
    assert torch.allclose(made, torch.tensor([[1.0, 0.0], [1.0, 0.5**0.5]]))


@pytest.fixture
def digits() -> Data:
    return load_data("digits/train")


@pytest.fixture
def bench(digits: Data, linear_target: Callable[..., ModuleTarget]) -> Bench:
    return Bench(linear_target((1, 8, 8), 10), training=digits)


def refused(bench: Bench, text: str) -> str:
    with pytest.raises(UsageError) as told:
        features_of(bench, text)
    return str(told.value)


class Ledger:
    """A workshop that only notes what it is given."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, str, dict[str, Any]]] = []

    def find(self, what: str, key: str) -> None:
        return None

    def watch(self, what: str, key: str) -> Any:
        from assay.stages.trainers.watch import Unwatched

        return Unwatched()

    def keep(self, what: str, key: str, columns: dict[str, Tensor], shown: Any) -> None:
        self.kept.append((what, key, shown.facts))


def test_a_reference_net_is_trained_well_enough_on_few_cases_and_once(
    bench: Bench, digits: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger()
    bench.kept[WORKSHOP] = ledger
    found = features_of(bench, "reference")
    told = re.fullmatch(
        r"penultimate layer of lenet5 trained 59 epochs on digits/train \(val (\d\d\.\d) %\)", found.name
    )
    assert told, found.name
    assert float(told[1]) > 95
    ((what, _, facts),) = ledger.kept
    assert what == "reference"
    assert facts["trained_on"] == "digits/train"
    assert facts["val_accuracy"] == pytest.approx(float(told[1]) / 100, abs=1e-3)
    x = digits.cases.x[:50]
    assert found(x).shape == (50, 84)
    assert found(x).dtype == torch.float32
    # Another target finds it again, and would not train it.
    monkeypatch.setattr(reference, "plain", lambda *_, **__: pytest.fail("trained a second time"))
    other = features_of(Bench(ModuleTarget(nn.Flatten(), digits.spec), training=digits), "reference")
    assert other.fingerprint == found.fingerprint
    assert torch.equal(other(x), found(x))
    # Digits of one class are more alike than those of two.
    y = digits.cases.y[:50]
    alike = cosine(found(x)[:, None], found(x)[None])
    same = y[:, None] == y
    assert alike[same].mean() > alike[~same].mean() + 0.3


def test_another_seed_net_or_length_is_another_net(bench: Bench, digits: Data) -> None:
    texts = ("epochs=1", "epochs=2", "epochs=1, seed=1", "epochs=1, model=mlp", "epochs=1, model=mlp(hidden=[8])")
    made = [features_of(bench, f"reference(steps=0, {text})").fingerprint for text in texts]
    shorter = replace(bench, training=digits[:600], kept={})
    made.append(features_of(shorter, "reference(steps=0, epochs=1)").fingerprint)
    assert len(set(made)) == 6


def test_steps_set_the_least_number_of_epochs(bench: Bench) -> None:
    # 1080 of 1200 digits are learned from, the others validate: 17 batches of 64.
    for text, epochs in (("steps=17", 3), ("steps=51", 3), ("steps=52", 4), ("steps=0, epochs=1", 1)):
        assert f" trained {epochs} epochs on " in features_of(bench, f"reference(model=mlp, {text})").name


def test_a_net_with_weights_gives_its_penultimate_layer(bench: Bench, digits: Data, digits_model: str) -> None:
    found = features_of(bench, f"reference(model={digits_model})")
    assert found.name == f"penultimate layer of {digits_model}"
    net = load_target(digits_model, data=digits)
    assert isinstance(net, ModuleTarget)
    taken: list[Tensor] = []
    parts = dict(net.module.named_modules())
    parts["net.act4"].register_forward_hook(lambda _m, _i, out: taken.append(out))
    with torch.no_grad():
        net(digits.cases.x[:9])
    assert torch.allclose(found(digits.cases.x[:9]), taken[0], atol=1e-6)
    named = features_of(bench, f"reference(model={digits_model}, layer=act3)")
    assert named.name == f"layers act3 of {digits_model}"
    assert named(digits.cases.x[:9]).shape == (9, 120)
    assert named.fingerprint != found.fingerprint


def test_inputs_are_brought_into_the_range_of_the_net(bench: Bench, digits: Data, digits_model: str) -> None:
    wide = InputSpec((1, 8, 8), (-1.0, 3.0), bench.target.spec.classes)
    x = digits.cases.x[:5]
    within = features_of(bench, f"reference(model={digits_model})")(x)
    stretched = features_of(Bench(ModuleTarget(nn.Flatten(), wide)), f"reference(model={digits_model})")(4 * x - 1)
    assert torch.allclose(within, stretched, atol=1e-4)


def test_a_reference_net_needs_labelled_cases_of_its_shape(bench: Bench, digits: Data, digits_model: str) -> None:
    bare = replace(bench, training=None, kept={})
    assert "none are known here; name a net that is trained: reference(model=NET@" in refused(bare, "reference")
    unlabelled = replace(bench, training=Data("new", Cases.of(digits.cases.x), digits.spec), kept={})
    assert "labelled cases, and new has none; name a net that is trained" in refused(unlabelled, "reference")
    spec = InputSpec((20,), (0.0, 1.0), ("a", "b"))
    vectors = Data("rows", Cases.of(torch.rand(40, 20), torch.arange(40) % 2), spec)
    flat = Bench(ModuleTarget(nn.Linear(20, 2), spec), training=vectors)
    assert "try the model 'mlp'; or name a net that is trained" in refused(flat, "reference")
    assert features_of(flat, "reference(model=mlp, steps=0)")(vectors.cases.x[:3]).shape == (3, 64)
    assert "(1, 8, 8), the target of shape (20,); name one" in refused(flat, f"reference(model={digits_model})")
    assert "epochs from 1 up" in refused(bench, "reference(epochs=0)")
    assert "unknown model 'lenet6'" in refused(bench, "reference(model=lenet6)")
    assert "has no numbers" in refused(bench, f"reference(model={digits_model}, layer=none)")


def test_only_labelled_cases_are_learned_from(bench: Bench, digits: Data) -> None:
    y = digits.cases.y.clone()
    y[:600] = -1
    mixed = replace(bench, training=Data("mixed", Cases.of(digits.cases.x, y), digits.spec), kept={})
    alone = replace(bench, training=Data("mixed", Cases.of(digits.cases.x[600:], y[600:]), digits.spec), kept={})
    texts = [features_of(b, "reference(model=mlp, steps=0)").fingerprint for b in (mixed, alone)]
    assert texts[0] == texts[1]


OWN = """
import torch
from torch import nn


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(64, 5)
        nn.init.ones_(self.dense.weight)
        self.drop = nn.Dropout(0.9)

    def forward(self, x):
        return self.drop(self.dense(x.flatten(1)))


def module(bench): return Odd()
def rows(bench, *, times: float = 1.0): return lambda x: times * x.flatten(1)
def halves(bench): return lambda x: x.flatten(1).half()
def maps(bench): return lambda x: x
def few(bench): return lambda x: x.flatten(1)[:1]
def whole(bench): return lambda x: x.flatten(1).round().long()
def raising(bench): return lambda x: 1 / 0
def number(bench): return 3
def broken(bench): return lambda x: x.flatten(1) * float("nan")
def empty(bench): return lambda x: x.flatten(1)[:, :0]
"""


def test_features_of_the_users_own(bench: Bench, digits: Data, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    x = digits.cases.x[:4]
    assert torch.equal(features_of(bench, f"{file}:rows(times=2)")(x), 2 * x.flatten(1))
    assert features_of(bench, f"{file}:rows(times=2)").name == f"{file}:rows(times=2.0)"
    assert features_of(bench, f"{file}:halves")(x).dtype == torch.float32
    net = features_of(bench, f"{file}:module")
    assert torch.allclose(net(x)[:, 0] - net(x)[0, 0], x.sum((1, 2, 3)) - x[0].sum(), atol=1e-4), "nothing drops out"
    assert not net(x.requires_grad_()).requires_grad
    x.requires_grad_(False)
    for name, told in (
        ("maps", "features of 2 inputs are (2, D) numbers; {} gave (2, 1, 8, 8)"),
        ("few", "gave (1, 64)"),
        ("empty", "gave (2, 0)"),
        ("whole", "gave torch.int64"),
        ("raising", "raising failed: ZeroDivisionError"),
        ("number", "must return a module or a function of inputs, it gave int"),
        ("broken", "gives NaN or infinity"),
        ("missing", "has no 'missing'"),
    ):
        assert told.format(f"{file}:{name}") in refused(bench, f"{file}:{name}")


def test_the_same_name_in_a_changed_file_is_told_apart(bench: Bench, tmp_path: Path) -> None:
    prints = []
    for i in range(2):
        file = tmp_path / f"own{i}.py"
        file.write_text(f"def rows(bench): return lambda x: {i + 1} * x.flatten(1)\n")
        prints.append(features_of(bench, f"{file}:rows").fingerprint)
    assert prints[0] != prints[1]


class Mean(nn.Module):
    """The mean of each channel, so that what becomes of an image can be told."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1:] == (3, 224, 224)
        return x.mean((2, 3))


def test_images_for_nets_of_imagenet() -> None:
    grey = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0)) * 2 - 1
    made = image(grey, (-1.0, 1.0))
    assert made.shape == (2, 3, 224, 224)
    assert torch.equal(made[:, 0], made[:, 2])
    want = nn.functional.interpolate((grey + 1) / 2, (224, 224), mode="bilinear", align_corners=False)
    assert torch.allclose(made[:, :1], want)
    right = torch.rand(1, 3, 224, 224)
    assert torch.equal(image(right, (0.0, 1.0)), right)
    stripes = (torch.arange(448) % 2).float().expand(1, 3, 448, 448)
    assert image(stripes, (0.0, 1.0)).std() < 0.1, "what shrinks is smoothed first"


def test_images_are_normalised_and_come_in_parts(
    linear_target: Callable[..., ModuleTarget], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "FEW_ROWS", 2)
    found = seen_by(Bench(linear_target((1, 8, 8))), Mean(), "means", (0.1, 0.2, 0.3), (1.0, 2.0, 4.0), "all")
    levels = torch.tensor([0.0, 0.5, 1.0])
    made = found(levels.view(3, 1, 1, 1).expand(3, 1, 8, 8))
    assert torch.allclose(made, (levels[:, None] - torch.tensor([0.1, 0.2, 0.3])) / torch.tensor([1.0, 2.0, 4.0]))
    for shape in ((4,), (2, 8, 8)):
        with pytest.raises(UsageError, match="means takes grey or colour images, and these inputs have the shape"):
            seen_by(Bench(linear_target(shape)), Mean(), "means", (0.1,) * 3, (1.0,) * 3, "all")


def test_vgg19_has_the_names_and_sizes_of_torchvision() -> None:
    with torch.device("meta"):
        net = vgg19.Vgg19("fc2")
    own = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    places = [0, 2, 5, 7, 10, 12, 14, 16, 19, 21, 23, 25, 28, 30, 32, 34]
    widths = [64] * 2 + [128] * 2 + [256] * 4 + [512] * 8
    want = {f"features.{place}.weight": width for place, width in zip(places, widths, strict=True)}
    assert {name: shape[0] for name, shape in own.items() if "features" in name and "weight" in name} == want
    dense = {0: (4096, 25088), 3: (4096, 4096), 6: (1000, 4096)}
    assert {n: s for n, s in own.items() if re.fullmatch(r"classifier.\d.weight", n)} == {
        f"classifier.{place}.weight": shape for place, shape in dense.items()
    }
    assert sum(p.numel() for p in net.parameters()) == 143_667_240
    x = torch.empty(2, 3, 224, 224, device="meta")
    assert [vgg_on_meta(layer, x) for layer in ("fc1", "fc2", "fc3")] == [4096, 4096, 1000]


def vgg_on_meta(layer: str, x: Tensor) -> int:
    with torch.device("meta"):
        net = vgg19.Vgg19(layer)
    return int(net(x).shape[1])


def test_vgg19_says_what_it_lacks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import pooch

    def offline(*_: object, **__: object) -> str:
        raise ConnectionError("no route")

    monkeypatch.setattr(pooch, "retrieve", offline)
    told = refused(bench, "vgg19")
    assert "cannot fetch https://download.pytorch.org/models/vgg19-dcbb9e9d.pth (ConnectionError)" in told
    assert "vgg19(weights=FILE)" in told
    assert "no weights nowhere.pth here or in" in refused(bench, "vgg19(weights=nowhere.pth)")
    assert "layer is one of fc1, fc2, fc3; got 'fc7'" in refused(bench, "vgg19(layer=fc7)")
    assert vgg19.SHA256.startswith("dcbb9e9d"), "the part of the digest that is in the file's name"


def test_weights_are_found_by_path_and_among_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    weights = net.state_dict()
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "w.npz", **{name: tensor.numpy() for name, tensor in weights.items()})
    save_file(weights, tmp_path / "w.safetensors")
    torch.save(weights, tmp_path / "w.pth")
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path / "data"))

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))

    for text in ("w.npz", str(tmp_path / "w.safetensors"), str(tmp_path / "w.pth")):
        made = with_weights(build, text)
        assert all(torch.equal(tensor, weights[name]) for name, tensor in made.state_dict().items()), text
        assert not made.training
        assert not any(p.requires_grad for p in made.parameters())
    with pytest.raises(UsageError, match="do not fit the net: missing"):
        with_weights(lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2)), "w.npz")
    random = [with_weights(build, "random").state_dict()["0.weight"] for _ in range(2)]
    assert torch.equal(*random)


def test_efficientnet_lite0_has_the_names_and_sizes_of_the_published_arrays() -> None:
    net = efficientnet_lite0(shape=(3, 224, 224), classes=1000)
    own = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    assert len(own) == 296
    assert sum(p.numel() for p in net.parameters()) == 4_652_008
    for name, shape in (
        ("_conv_stem.weight", (32, 3, 3, 3)),
        ("_bn0.running_mean", (32,)),
        ("_blocks.0._depthwise_conv.weight", (32, 1, 3, 3)),
        ("_blocks.3._expand_conv.weight", (144, 24, 1, 1)),
        ("_blocks.3._depthwise_conv.weight", (144, 1, 5, 5)),
        ("_blocks.15._project_conv.weight", (320, 1152, 1, 1)),
        ("_conv_head.weight", (1280, 320, 1, 1)),
        ("_fc.weight", (1000, 1280)),
    ):
        assert own[name] == shape
    assert "_blocks.0._expand_conv.weight" not in own
    sides: list[tuple[int, ...]] = []
    net.get_submodule("_conv_head").register_forward_hook(lambda _m, _i, out: sides.append(tuple(out.shape[2:])))
    with torch.no_grad():
        net.eval()(torch.rand(1, 3, 224, 224))
    assert sides == [(7, 7)]


def test_padding_puts_the_odd_zero_after() -> None:
    def widths(kernel: int, stride: int, side: int) -> tuple[int, ...]:
        made = same_padding(kernel, stride, (side, side))
        assert isinstance(made, nn.ZeroPad2d)
        return tuple(made.padding)

    assert widths(3, 2, 224) == (0, 1, 0, 1)
    assert widths(3, 2, 7) == (1, 1, 1, 1)
    assert widths(5, 2, 56) == (1, 2, 1, 2)
    assert widths(5, 1, 14) == (2, 2, 2, 2)


def test_efficientnet_lite_pools_before_its_classifier(
    tmp_path: Path, linear_target: Callable[..., ModuleTarget], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    net = efficientnet_lite0(shape=(3, 224, 224), classes=1000).eval()
    np.savez(tmp_path / "efficientnet_lite0.npz", **{n: t.numpy() for n, t in net.state_dict().items()})
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    found = features_of(Bench(linear_target((3, 224, 224))), "efficientnet_lite")
    assert found.name == "pooled features of EfficientNet-Lite0 (weights efficientnet_lite0.npz)"
    x = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    taken: list[Tensor] = []
    net.get_submodule("pool").register_forward_hook(lambda _m, _i, out: taken.append(out.flatten(1)))
    with torch.no_grad():
        net((x * 255 - 127) / 128)
    assert taken[0].shape == (2, 1280)
    assert torch.allclose(found(x), taken[0], rtol=0, atol=1e-4 * float(taken[0].max()))
