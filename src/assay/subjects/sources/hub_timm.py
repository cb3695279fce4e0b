"""``timm:name.tag``: the weights from the hub at one commit, as safetensors only."""

from pathlib import Path
from typing import Any

from torch import nn

from assay.core.errors import UsageError
from assay.core.extras import needed
from assay.core.specs import did_you_mean
from assay.subjects import hub as site
from assay.subjects.data.view import Pixels, View, whole
from assay.subjects.sources import checkpoint
from assay.subjects.sources.hub import USUAL, HubNet, first_words, sized
from assay.subjects.sources.hub_specs import HubSpec

CONFIG, SAFE = "config.json", "model.safetensors"
_OTHER_NAMES = ("open_clip_model.safetensors",)


def pinned(spec: HubSpec) -> HubSpec:
    """The same with its tag and commit."""
    _check(spec)
    if spec.folder is not None or (spec.weights is not None and spec.repo is None):
        return spec
    repo, name = spec.repo, spec.name
    if repo is None:
        config = _config(spec)
        repo = _home(spec, config)
        name = f"{config['architecture']}.{config['tag']}" if config.get("tag") else spec.name
    revision = spec.revision if spec.is_pinned else site.commit_of(repo, spec.revision)
    return HubSpec(spec.scheme, name, "", revision, spec.weights, spec.params)


def view(spec: HubSpec) -> View | None:
    """Resize and crop as timm's own transform does them."""
    setting = _setting(spec, _config(spec))
    transform = needed("timm.data", "hub", str(spec)).create_transform(**setting, is_training=False, normalize=False)

    def take(image: Any) -> Pixels:
        return whole(transform(image))

    channels, height, width = setting["input_size"]
    return View((height, width), channels if channels in (1, 3) else 0, take)


def made(spec: HubSpec) -> HubNet:
    """The net with its weights, whether of the hub, of a folder or of a file."""
    _check(spec)
    timm, config = _timm(spec), _config(spec)
    name = f"local-dir:{_folder(spec)}" if spec.folder is not None or spec.repo is not None else spec.name
    params = {key: value for key, value in spec.params.items() if key != "classes"}
    namings: tuple[tuple[str, ...], ...] = ()
    if spec.weights is not None:

        def make(count: int) -> nn.Module:
            bare: nn.Module = timm.create_model(name, pretrained=False, **{**params, "num_classes": count})
            return bare

        net = sized(make, spec.weights, params)
    else:
        tensors, _ = checkpoint.read(_safe_file(spec, config))
        overlay = {"state_dict": tensors, "source": "", "custom_load": False}
        net = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **params)
        checkpoint.fitted(net, net.state_dict(), Path(str(spec)))  # numbers that are none
        namings = _namings(config, net)
    setting = _setting(spec, config)
    return HubNet(net, tuple(setting["input_size"]), tuple(setting["mean"]), tuple(setting["std"]), namings)


def _check(spec: HubSpec) -> None:
    if spec.weights is None and "num_classes" in spec.params:
        raise UsageError(
            f"num_classes of {spec} is that of its weights; it is for weights of your own: …@w.safetensors"
        )


def _timm(spec: HubSpec) -> Any:
    return needed("timm", "hub", str(spec))


def _config(spec: HubSpec) -> dict[str, Any]:
    """What timm knows of those weights."""
    timm = _timm(spec)
    if spec.folder is not None or spec.repo is not None:
        told, architecture, _ = needed("timm.models._hub", "hub", str(spec)).load_model_config_from_path(_folder(spec))
        if not timm.is_model(architecture):
            raise UsageError(f"{spec}: this timm has no {architecture!r}; its version is {timm.__version__}")
        usual = timm.models.get_pretrained_cfg(architecture)
        return {**({} if usual is None else usual.to_dict()), **told, "architecture": architecture}
    architecture, _, tag = spec.name.partition(".")
    if not timm.is_model(architecture):
        raise UsageError(f"timm has no model {architecture!r}; {did_you_mean(architecture, timm.list_models())}")
    if tag and spec.name not in timm.list_models(f"{architecture}.*", pretrained=True):
        tags = [name.partition(".")[2] for name in timm.list_models(f"{architecture}.*", pretrained=True)]
        raise UsageError(f"timm has no weights {tag!r} of {architecture}; {did_you_mean(tag, tags)}")
    known = timm.models.get_pretrained_cfg(spec.name)
    return {} if known is None else dict(known.to_dict())


def _folder(spec: HubSpec) -> Path:
    """The folder with the files of a model that is not timm's own."""
    if spec.folder is not None:
        if not (spec.folder / CONFIG).is_file():
            raise UsageError(f"{spec.folder} holds no {CONFIG}; timm.models.save_for_hf(model, folder) makes one")
        return spec.folder
    assert spec.repo is not None
    wanted = (CONFIG,) if spec.weights is not None else (CONFIG, SAFE)
    folder = site.snapshot(spec.repo, spec.revision, wanted)
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{spec.repo} holds no {CONFIG}, so it is no model of timm; is it hf:{spec.repo}?")
    return folder


def _home(spec: HubSpec, config: dict[str, Any]) -> str:
    """The repository of the weights."""
    home = config.get("hf_hub_id")
    if not home:
        raise UsageError(
            f"{spec} has no weights on the hub as safetensors, and others are not loaded; "
            f"name a file of your own: timm:{spec.name}@w.safetensors"
        )
    return str(home)


def _safe_file(spec: HubSpec, config: dict[str, Any]) -> Path:
    """The file of weights, which is safetensors or nothing."""
    if spec.folder is not None or spec.repo is not None:
        folder, names = _folder(spec), [SAFE]
    else:
        told = str(config.get("hf_hub_filename") or SAFE)
        names = [told] if told.endswith(".safetensors") else [SAFE, *_OTHER_NAMES]
        folder = site.snapshot(_home(spec, config), spec.revision, names)
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise UsageError(
            f"{spec} has no weights as safetensors ({', '.join(names)}), and pickled ones are not loaded, for loading "
            "could run code; save them anew: safetensors.torch.save_file(model.state_dict(), 'w.safetensors')"
        )
    return found


def _setting(spec: HubSpec, config: dict[str, Any]) -> dict[str, Any]:
    """Size, crop, interpolation, mean and std of the images it takes."""
    data = needed("timm.data", "hub", str(spec))
    size = list(config.get("input_size") or (3, 224, 224))
    side = spec.params.get("img_size")
    if side is not None:
        size[1:] = [side, side] if isinstance(side, int) else list(side)
    size[0] = int(spec.params.get("in_chans", size[0]))
    return dict(data.resolve_data_config({"input_size": tuple(size)}, pretrained_cfg=config))


def _namings(config: dict[str, Any], net: Any) -> tuple[tuple[str, ...], ...]:
    """The names of the classes, where the weights name them or are of ImageNet."""
    count = int(getattr(net, "num_classes", USUAL))
    names, words = config.get("label_names"), config.get("label_descriptions")
    own = tuple(map(str, names)) if names and len(names) == count else ()
    if isinstance(words, dict) and own and all(name in words for name in own):
        return (tuple(str(words[name]) for name in own), own)
    if own:
        return (own,)
    data = needed("timm.data", "hub", "timm")
    subset = data.infer_imagenet_subset(config)
    if not subset:
        return ()
    known = data.ImageNetInfo(subset)
    if known.num_classes() != count:
        return ()
    return (*first_words(tuple(known.label_descriptions())), tuple(known.label_names()))
