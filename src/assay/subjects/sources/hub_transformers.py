"""``hf:owner/name@revision``: image classifiers of transformers, as safetensors only, without code of theirs."""

import contextlib
import importlib.util
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core import trust
from assay.core.errors import UsageError
from assay.core.extras import needed
from assay.core.files import whole_text
from assay.subjects import hub as site
from assay.subjects.data.view import Pixels, View, whole
from assay.subjects.sources.hub import HubNet, first_words, loaded
from assay.subjects.sources.hub_specs import HubSpec

log = logging.getLogger("assay")

CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
_AUTO = "AutoModelForImageClassification"
_INDEX = "model.safetensors.index.json"
_WEIGHTS = ("model.safetensors", "model-*.safetensors", _INDEX)
_UNNAMED = re.compile(r"LABEL_\d+")  # what transformers calls classes that nobody has named
_LOADS = {"checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "pretrained_custom_load"}
_LONGEST = 16 << 20  # bytes of a configuration
_CLOSE = 1e-4  # how far two ways to normalise may be apart
_TRIAL = (48, 64)  # an image that no model takes as it is


def pinned(spec: HubSpec) -> HubSpec:
    """The same at the commit that its revision means."""
    if spec.repo is None or spec.is_pinned:
        return spec
    return spec.at(site.commit_of(spec.repo, spec.revision))


def view(spec: HubSpec) -> View | None:
    """Resize and crop as the model's image processor does them."""
    processor = _processor(spec, _folder(spec, weights=False))
    return None if processor is None else _view(processor)


def made(spec: HubSpec) -> HubNet:
    """The net with its weights."""
    _only_known(spec)
    config, code = _config(spec, _folder(spec, weights=False))  # what it is, before weights are fetched
    folder = _folder(spec, weights=spec.weights is None)
    auto = getattr(needed("transformers", "hub", str(spec)), _AUTO)
    with _quiet():
        if spec.weights is not None:
            net = loaded(auto.from_config(config, trust_remote_code=code, attn_implementation="eager"), spec.weights)
        else:
            net = _pretrained(spec, folder, auto, config, code)
    net = net.float()
    names = tuple(whole_text(str(config.id2label[i])) for i in range(config.num_labels))
    namings = () if all(map(_UNNAMED.fullmatch, names)) else first_words(names)
    processor = _processor(spec, folder)
    if processor is None:
        log.warning("%s has no %s: inputs go in as they are, unless --mean and --std are given", spec, PROCESSOR)
        return HubNet(net, _own_shape(config), namings=namings)
    found = _view(processor)
    shape = _own_shape(config) if found.size is None else (found.channels, *found.size)
    return HubNet(net, shape, *_moments(processor, shape or (3, 8, 8), spec), namings)


def _only_known(spec: HubSpec) -> None:
    strange = sorted(spec.params.keys() - {"classes"})
    if strange:
        raise UsageError(f"{spec.net} has no parameter {strange[0]!r}; the one there is: classes=own or classes=data")


def _folder(spec: HubSpec, *, weights: bool) -> Path:
    """The folder with what is wanted of the model, and nothing that is a pickle."""
    if spec.folder is None:
        assert spec.repo is not None
        code = ("*.py",) if trust.runs_remote_code() else ()
        folder = site.snapshot(spec.repo, spec.revision, (CONFIG, PROCESSOR, *code, *(_WEIGHTS if weights else ())))
    else:
        folder = spec.folder
    if not (folder / CONFIG).is_file():
        if spec.folder is not None and not folder.is_dir():
            raise UsageError(f"no such folder: {folder}")
        hint = f"; is it timm:{spec.repo}?" if spec.repo else "; model.save_pretrained(folder) writes one"
        raise UsageError(f"{spec.net} holds no {CONFIG}, so it is no model of transformers{hint}")
    if weights and not any(folder.glob("model*.safetensors")):
        raise UsageError(
            f"{spec.net} has no weights as safetensors, and pickled ones are not loaded, for loading could run code; "
            f"use a revision that has them, or save them anew: model.save_pretrained(folder), then hf:./folder"
        )
    return folder


def _config(spec: HubSpec, folder: Path) -> tuple[Any, bool]:
    """The model's configuration, and whether code of the repository has to be run for it."""
    told = _json(folder / CONFIG)
    transformers = needed("transformers", "hub", str(spec))
    kind = told.get("model_type")
    _check_timm(spec, told)
    native = kind in transformers.CONFIG_MAPPING and (
        type(transformers.CONFIG_MAPPING[kind]()) in getattr(transformers, _AUTO)._model_mapping
    )
    if native:
        with site.asked(spec.net):
            return transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False), False
    if _AUTO not in (told.get("auto_map") or {}):
        why = f"model type {kind!r}, architecture {', '.join(map(str, told.get('architectures') or ['unknown']))}"
        raise UsageError(
            f"{spec.net} is no image classifier that transformers {transformers.__version__} knows ({why})"
        )
    trust.check(str(spec))
    if not trust.runs_remote_code():
        raise UsageError(
            f"{spec.net} needs code of its repository, which is not run; read it there, then give --trust-remote-code "
            "(and name the commit you read: @COMMIT)"
        )
    log.warning("%s: running code of its repository, as --trust-remote-code says", spec.net)
    with site.asked(spec.net):
        return transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True), True


def _check_timm(spec: HubSpec, told: dict[str, Any]) -> None:
    """A wrapped net of timm: its configuration may name a kind of net, not files or repositories to load besides."""
    if told.get("model_type") != "timm_wrapper":
        return
    given = told.get("model_args") or {}
    loads = sorted(set(given) & _LOADS) if isinstance(given, dict) else ["model_args"]
    named = str(told.get("architecture", ""))
    if loads or not re.fullmatch(r"[\w.]+", named):
        what = loads[0] if loads else f"architecture {named!r}"
        raise UsageError(f"the configuration of {spec.net} names more to load ({what}), which is not done")


def _check_index(spec: HubSpec, folder: Path) -> None:
    """A list of files of weights names safetensors beside it and nothing else."""
    if not (folder / _INDEX).is_file() or (folder / _WEIGHTS[0]).is_file():
        return
    listed = _json(folder / _INDEX).get("weight_map")
    names = set(map(str, listed.values())) if isinstance(listed, dict) else {""}
    strange = sorted(name for name in names if not name.endswith(".safetensors") or "/" in name or "\\" in name)
    if strange:
        raise UsageError(f"{_INDEX} of {spec.net} names {strange[0]!r}, which is no file of safetensors beside it")


def _pretrained(spec: HubSpec, folder: Path, auto: Any, config: Any, code: bool) -> Any:
    """The net with the weights of the folder, all of them."""
    _check_index(spec, folder)
    with site.asked(spec.net):
        net, told = auto.from_pretrained(
            folder,
            config=config,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=code,
            attn_implementation="eager",  # fused attention has no second derivatives, which some recipes take
            output_loading_info=True,
        )
    lacks = sorted(map(str, [*told.get("missing_keys", ()), *told.get("mismatched_keys", ())]))
    if lacks:
        raise UsageError(
            f"the weights of {spec.net} lack {', '.join(lacks[:3])}{' …' * (len(lacks) > 3)}: "
            "it is no trained classifier, and its head would be random"
        )
    broken = [name for name, tensor in net.named_parameters() if not bool(tensor.isfinite().all())]
    if broken:
        raise UsageError(f"the weights of {spec.net} hold NaN or infinity: {', '.join(broken[:3])}")
    return net


def _processor(spec: HubSpec, folder: Path) -> Any:
    """The model's image processor, or None where it has none."""
    path = folder / PROCESSOR
    if not path.is_file():
        return None
    if importlib.util.find_spec("torchvision") is not None:
        needed("torchvision", "hub", str(spec))  # transformers imports it too, and does not say why it cannot
    transformers = needed("transformers", "hub", str(spec))
    old = int(transformers.__version__.split(".")[0]) < 5
    told = _json(path)
    code = trust.runs_remote_code() and "AutoImageProcessor" in (told.get("auto_map") or {})
    how: dict[str, Any] = {"use_fast": False} if old else {"backend": "pil"}
    with site.asked(spec.net), _quiet():
        return transformers.AutoImageProcessor.from_pretrained(folder, trust_remote_code=code, **how)


def _view(processor: Any) -> View:
    from PIL import Image

    # Some normalise once more unless they are told not to.
    only = {
        "do_rescale": False,
        "do_normalize": False,
        **({"include_top": False} if hasattr(processor, "include_top") else {}),
    }

    def take(image: Any) -> Pixels:
        return whole(_given(processor, image, **only))

    if (take(Image.new("RGB", (_TRIAL[1], _TRIAL[0]), (100, 100, 100))) != 100).any():
        raise UsageError(
            f"the image processor {type(processor).__name__} does more than resize and crop, normalisation left out; "
            "write the net in a file of your own: file.py:function@w"
        )
    # One image tells the size better than the words of a dozen processors do.
    channels, height, width = take(Image.new("RGB", (_TRIAL[1], _TRIAL[0]))).shape
    if (height, width) == _TRIAL:
        return View(None, channels)  # it resizes nothing
    return View((height, width), channels, take)


def _given(processor: Any, image: Any, **how: bool) -> NDArray[Any]:
    """What the processor makes of one image, (C, H, W)."""
    with _quiet():
        told = processor(images=image, return_tensors="np", **how)["pixel_values"]
    one: NDArray[Any] = np.asarray(told)[0]
    return one


def _moments(processor: Any, shape: tuple[int, ...], spec: HubSpec) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std by which it normalises pixels in [0, 1], taken from what it does to black, white and grey."""
    black, grey, white = (_of_flat(processor, shape, value) for value in (0, 51, 255))
    scale = white - black
    if (scale <= 0).any() or np.abs(black + 0.2 * scale - grey).max() > _CLOSE * np.abs(scale).max():
        raise UsageError(
            f"the image processor of {spec.net} ({type(processor).__name__}) does more to pixels than subtract and "
            "divide, which cannot stand inside the target; write the net in a file of your own: file.py:function@w"
        )
    mean, std = tuple((-black / scale).tolist()), tuple((1 / scale).tolist())
    # The numbers as people wrote them, where they say the same.
    told: list[Any] = [getattr(processor, name, None) for name in ("image_mean", "image_std")]
    if all(isinstance(part, (list, tuple)) and len(part) == len(mean) for part in told) and np.allclose(
        told, (mean, std), atol=_CLOSE
    ):
        mean, std = tuple(map(float, told[0])), tuple(map(float, told[1]))
    plain = np.allclose(mean, 0, atol=_CLOSE) and np.allclose(std, 1, atol=_CLOSE)
    return ((), ()) if plain else (mean, std)


def _of_flat(processor: Any, shape: tuple[int, ...], value: int) -> NDArray[np.float64]:
    from PIL import Image

    # Not smaller than the crop, and not resized: a flat image stays flat.
    image = Image.new("RGB", (shape[2], shape[1]), (value, value, value))
    told = _given(processor, image).astype(np.float64)
    return np.asarray(told[:, told.shape[1] // 2, told.shape[2] // 2])


def _own_shape(config: Any) -> tuple[int, int, int] | None:
    side = getattr(config, "image_size", None)
    channels = int(getattr(config, "num_channels", 3))
    if isinstance(side, int):
        return (channels, side, side)
    return (channels, int(side[0]), int(side[1])) if isinstance(side, (list, tuple)) and len(side) == 2 else None


def _json(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8") if path.stat().st_size <= _LONGEST else ""
        told = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {(str(error).splitlines() or [''])[0]}") from error
    if not isinstance(told, dict):
        raise UsageError(f"{path} cannot be read: it is no JSON object")
    return told


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the bars of transformers, which stand between the lines of our own progress."""
    words = needed("transformers.utils.logging", "hub", "hf: models")
    shown, level = words.is_progress_bar_enabled(), words.get_verbosity()
    words.disable_progress_bar()
    words.set_verbosity_error()
    try:
        yield
    finally:
        words.set_verbosity(level)
        if shown:
            words.enable_progress_bar()
