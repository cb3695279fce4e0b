"""How models of hubs are written: ``timm:name.tag``, ``torchvision:name:WEIGHTS``, ``hf:owner/name@revision``.

Behind an ``@`` stands a revision, or a file with weights of one's own, or both: ``hf:owner/name@main@w.safetensors``.
Where an owner and a name would stand, a folder may: ``hf:./folder``.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.core.errors import UsageError
from assay.core.specs import Params, step, written

TIMM, TORCHVISION, TRANSFORMERS = "timm", "torchvision", "hf"
SCHEMES = (TIMM, TORCHVISION, TRANSFORMERS)
WEIGHTS = (".safetensors", ".pt", ".pth")

_REVISION = re.compile(r"[\w.][\w./-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_FOLDER = ("./", "../", "/", "~")


@dataclass(frozen=True, slots=True)
class HubSpec:
    """A model of a hub as it was written; ``tag`` is torchvision's name of the weights."""

    scheme: str
    name: str
    tag: str = ""
    revision: str = ""
    weights: Path | None = None
    params: Params = field(default_factory=dict)

    @property
    def folder(self) -> Path | None:
        """The folder, where a folder was named."""
        named = self.name.startswith(_FOLDER) or self.name in (".", "..")
        return Path(self.name).expanduser() if named and self.scheme != TORCHVISION else None

    @property
    def repo(self) -> str | None:
        """The repository, where one was named."""
        return self.name if self.folder is None and "/" in self.name else None

    @property
    def is_pinned(self) -> bool:
        """Whether it can only ever mean one thing on the hub."""
        return _COMMIT.fullmatch(self.revision) is not None

    def at(self, revision: str) -> "HubSpec":
        return replace(self, revision=revision)

    @property
    def net(self) -> str:
        """The text without the file of weights."""
        tag = f":{self.tag}" if self.tag else ""
        inner = ", ".join(f"{key}={written(value)}" for key, value in self.params.items())
        return (
            f"{self.scheme}:{self.name}{tag}{f'({inner})' if inner else ''}{f'@{self.revision}' * bool(self.revision)}"
        )

    def __str__(self) -> str:
        return self.net if self.weights is None else f"{self.net}@{self.weights}"


def is_revision(text: str) -> bool:
    """Whether a branch, tag or commit may be called so; one that leads out of a folder of such names is none.

    >>> is_revision("refs/pr/3"), is_revision("../../x")
    (True, False)
    """
    return _REVISION.fullmatch(text) is not None and not {"", ".", ".."} & set(text.split("/"))


def is_hub(model: Any) -> bool:
    """Whether the text names a model of a hub."""
    return isinstance(model, str) and model.partition(":")[0].lower() in SCHEMES and ":" in model


def parse(text: str) -> HubSpec:
    """The parts of such a text.

    >>> parse("hf:owner/name@main").revision
    'main'
    >>> str(parse("timm:resnet18(num_classes=10)@w.safetensors").weights)
    'w.safetensors'
    """
    scheme, _, rest = text.partition(":")
    scheme = scheme.lower()
    net, at, behind = rest.partition("@")
    name, params = step(net) if net.strip() else ("", {})
    if not name:
        raise UsageError(f"{text!r} names no model; write {_EXAMPLES[scheme]}")
    if at and not behind:
        raise UsageError(f"nothing stands behind the @ of {text!r}: a revision or a file of weights belongs there")
    revision, weights = _behind(behind)
    tag = ""
    if scheme == TORCHVISION:
        name, _, tag = name.partition(":")
    found = HubSpec(scheme, name, tag, revision, weights, params)
    _check(found, text)
    return found


_EXAMPLES = {
    TIMM: "timm:resnet18.a1_in1k",
    TORCHVISION: "torchvision:resnet18:IMAGENET1K_V1",
    TRANSFORMERS: "hf:owner/name, hf:owner/name@revision or hf:./folder",
}


def split_weights(text: str) -> tuple[str, str]:
    """The net and the file of weights of any model's text, the second empty where none is named.

    >>> split_weights("lenet5@w.safetensors"), split_weights("hf:a/b@main")
    (('lenet5', 'w.safetensors'), ('hf:a/b@main', ''))
    """
    if is_hub(text):
        spec = parse(text)
        return spec.net, "" if spec.weights is None else str(spec.weights)
    net, _, file = text.partition("@")
    return net, file


def _behind(text: str) -> tuple[str, Path | None]:
    """Revision and file of what stands behind the first @; a file is known by its ending."""
    if not text.lower().endswith(WEIGHTS):
        return text, None
    revision, at, file = text.partition("@")
    if at and not Path(text).exists() and is_revision(revision):
        return revision, Path(file)
    return "", Path(text)


def _check(spec: HubSpec, text: str) -> None:
    if spec.revision and not is_revision(spec.revision):
        raise UsageError(f"{spec.revision!r} in {text!r} is no revision: a branch, a tag or a commit")
    if spec.revision and (spec.scheme == TORCHVISION or spec.folder is not None):
        raise UsageError(f"{spec.net.rpartition('@')[0]} has no revisions; behind its @ stands a file of weights")
    if spec.scheme == TRANSFORMERS and spec.folder is None and not _REPO.fullmatch(spec.name):
        raise UsageError(f"{spec.name!r} is no repository: write {_EXAMPLES[TRANSFORMERS]}")
    if spec.repo is not None and not _REPO.fullmatch(spec.repo):
        raise UsageError(f"{spec.name!r} is no repository: write owner/name, or ./folder")
