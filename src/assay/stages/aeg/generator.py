"""The trained generator: what it makes of images, and how it is kept."""

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils import vector_to_parameters

from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.stages.aeg.nets import Generator, depth_of, margins
from assay.subjects.sources import checkpoint

KIND = "aeg"  # what a file of ours says it is

Columns = dict[str, Tensor]


@dataclass(slots=True)
class Aeg:
    """Generators from X to Y and back, as they were after each of the last epochs, newest first.

    ``facts`` say what it was made for (shape, bounds, width) and of (data, making), how its training went and how far
    from images its reconstructions of them are.
    """

    there: Tensor  # (S, weights)
    back: Tensor
    facts: dict[str, Any]
    chunks: Chunks = field(default_factory=Chunks)
    _nets: dict[tuple[int, int], Generator] = field(default_factory=dict, init=False, repr=False)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def name(self) -> str:
        """What a report calls it."""
        making = self.facts["making"]
        return f"CycleGAN of {self.facts['data']}, {making['split']}, {making['epochs']} epochs"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.facts["shape"])

    @property
    def bounds(self) -> tuple[float, float]:
        low, high = self.facts["bounds"]
        return float(low), float(high)

    @property
    def snapshots(self) -> int:
        return len(self.there)

    @property
    def variety(self) -> int:
        """How many ways there are to reconstruct an image: two directions, one snapshot for each half of the way."""
        return 2 * self.snapshots**2

    def fingerprint(self) -> str:
        """A digest of what it computes."""
        digest = hashlib.sha256(repr((self.shape, self.bounds)).encode())
        for kept in (self.there, self.back):
            digest.update(kept.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    def to(self, device: torch.device | str) -> "Aeg":
        """The same generator on another device."""
        return Aeg(self.there.to(device), self.back.to(device), self.facts, self.chunks)

    def made(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Reconstructions of images (N, *shape) within the bounds, each in the way of its number, (N, *shape).

        Numbers count modulo ``variety``: first one snapshot for both halves of the way, newest first, in both
        directions, then neighbouring snapshots, and so on.
        """
        images = self._scaled(x)
        ways = _ways(self.snapshots).to(images.device)[numbers.to(images.device) % self.variety]
        halfway = self._half(images, ways[:, 0], ways[:, 1])
        whole = self._half(halfway, 1 - ways[:, 0], ways[:, 2])
        return self._cropped(whole).to(x.device, x.dtype)

    def steps(self, x: Tensor, snapshot: int = 0) -> tuple[Tensor, Tensor]:
        """The images after the first half of the way by ``there``, and the reconstructions, both (N, *shape)."""
        images = self._scaled(x)
        first = torch.zeros(len(x), dtype=torch.int64, device=images.device)
        which = torch.full_like(first, snapshot)
        halfway = self._half(images, first, which)
        whole = self._half(halfway, first + 1, which)
        return self._cropped(halfway).to(x.device, x.dtype), self._cropped(whole).to(x.device, x.dtype)

    def _half(self, images: Tensor, side: Tensor, snapshot: Tensor) -> Tensor:
        """Each image through the net of its side and snapshot; rows of one net together."""
        out = torch.empty_like(images)
        net_of = side * self.snapshots + snapshot
        for number in net_of.unique().tolist():
            rows = (net_of == number).nonzero().squeeze(1)
            net = self._net(number // self.snapshots, number % self.snapshots)

            def through(block: Tensor, net: Generator = net) -> Tensor:
                # Not inference mode: what is made may be climbed, and its tensors cannot.
                with torch.no_grad():
                    made: Tensor = net(block)
                return made

            out[rows] = self.chunks.map(through, images[rows])
        return out

    def _net(self, side: int, snapshot: int) -> Generator:
        if (side, snapshot) not in self._nets:
            net = self._untrained()
            vector_to_parameters((self.there, self.back)[side][snapshot].clone(), net.parameters())
            self._nets[side, snapshot] = net.eval().requires_grad_(False)
        return self._nets[side, snapshot]

    def _untrained(self) -> Generator:
        """A net of the form of all of them."""
        making = self.facts["making"]
        return Generator(
            self.shape[0], depth_of(self.shape), int(making["width"]), bool(making.get("first_norm", True))
        )

    def _scaled(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.shape:
            raise UsageError(
                f"the generator was made for images of {'×'.join(map(str, self.shape))}, and inputs are "
                f"{'×'.join(map(str, x.shape[1:]))}; make one for them: assay aeg DATA"
            )
        return scaled(x.to(self.there.device, torch.float32), self.shape, self.bounds)

    def _cropped(self, images: Tensor) -> Tensor:
        left, _, above, _ = margins(self.shape)
        low, high = self.bounds
        inside = images[..., above : above + self.shape[1], left : left + self.shape[2]]
        return ((inside + 1) / 2 * (high - low) + low).clamp(low, high)

    def columns(self) -> Columns:
        """All of it as tensors by name."""
        told = json.dumps(self.facts, sort_keys=True, allow_nan=False).encode()
        return {"there": self.there.cpu(), "back": self.back.cpu(), "facts": torch.tensor(list(told)).to(torch.uint8)}

    @staticmethod
    def of(columns: Mapping[str, Tensor]) -> "Aeg":
        """The generator of such tensors."""
        facts = json.loads(bytes(columns["facts"].tolist()))
        made = Aeg(columns["there"], columns["back"], facts)
        made.check("what was kept")
        return made

    def check(self, source: str) -> None:
        """Refuse weights that the facts do not fit."""
        try:
            with torch.device("meta"):  # a damaged file may ask for a net of any size: look before memory is taken
                whole = self._untrained()
            wanted = sum(weight.numel() for weight in whole.parameters())
            low, high = self.bounds
            fits = self.there.shape == self.back.shape == (self.snapshots, wanted) and low < high and self.snapshots > 0
            fits = fits and bool(self.there.isfinite().all()) and bool(self.back.isfinite().all())
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError, OverflowError, AttributeError) as error:
            reason = (str(error).splitlines() or [""])[0]
            raise UsageError(
                f"{source} holds no generator: its facts lack or misstate {reason}; make one: assay aeg DATA"
            ) from error
        if not fits:
            raise UsageError(f"{source} holds a damaged generator; make it anew: assay aeg DATA --out FILE")

    def save(self, path: Path) -> None:
        """Write ``aeg.safetensors``, its facts in the metadata."""
        checkpoint.write(path, {"there": self.there, "back": self.back}, {"kind": KIND, **self.facts})

    @staticmethod
    def load(path: Path) -> "Aeg":
        """The generator of a file that ``save`` wrote."""
        tensors, facts = checkpoint.read(path)
        if facts.get("kind") != KIND or set(tensors) != {"there", "back"}:
            raise UsageError(f"{path} holds no generator; make one: assay aeg DATA --out FILE")
        made = Aeg(tensors["there"], tensors["back"], {key: fact for key, fact in facts.items() if key != "kind"})
        made.check(str(path))
        return made


def scaled(x: Tensor, shape: tuple[int, ...], bounds: tuple[float, float]) -> Tensor:
    """Images within bounds as images in [-1, 1], their borders repeated to sides that can be halved."""
    low, high = bounds
    unit = (x - low) * (2 / (high - low)) - 1
    around = margins(shape)
    return pad(unit, around, mode="replicate") if any(around) else unit


def _ways(snapshots: int) -> Tensor:
    """Every way to reconstruct: the side that comes first, the snapshot of each half, (2·S², 3)."""
    apart = sorted(
        itertools.product(range(snapshots), repeat=2),
        key=lambda pair: (abs(pair[0] - pair[1]), max(pair), pair),
    )
    return torch.tensor([(side, *pair) for pair in apart for side in (0, 1)])
