"""The range of every neuron over the training data: fitted once, kept by a digest of all it depends on."""

import logging
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from assay.core.cache import remembered
from assay.core.chunks import Chunks
from assay.core.errors import NothingToTest, UsageError
from assay.core.files import canonical_json, sha256
from assay.subjects.bench import Data
from assay.subjects.observer import Observer

log = logging.getLogger("assay")

_VERSION = 2  # of what is computed; a new one leaves old files behind
_ROWS = 1 << 14  # inputs whose chunks are merged together
_PROBES = 16  # training inputs whose neurons tell nets apart that differ in code alone
_COLUMNS = ("low", "high", "mean", "std", "count")


@dataclass(frozen=True, slots=True)
class Profile:
    """Smallest, largest, mean value and standard deviation of every neuron, (W,) each, over ``count`` inputs.

    ``training`` are those inputs, for criteria that ask more of them.
    """

    low: Tensor
    high: Tensor
    mean: Tensor
    std: Tensor
    count: int
    training: Data | None = None


def needed(profile: Profile | None, observer: Observer, name: str) -> Profile:
    """The profile on the device of the nets; refused where there is none, or one of other neurons."""
    if profile is None:
        raise UsageError(f"criterion {name!r} goes by the range of neurons over the training data; give --training")
    if len(profile.low) != observer.neurons:
        raise UsageError(f"the profile is of {len(profile.low)} neurons, the layers have {observer.neurons}")
    device = observer.targets[0].device
    low, high, mean, std = (getattr(profile, column).to(device) for column in ("low", "high", "mean", "std"))
    return Profile(low, high, mean, std, profile.count, profile.training)


def profile_of(observer: Observer, data: Data, chunks: Chunks) -> Profile:
    """The profile of all neurons that the observer looks at, net after net, from the cache where it is there."""
    if not len(data):
        raise NothingToTest(f"{data.name} holds no case to fit a profile to")
    # The device is part of it: another one rounds otherwise, and the largest training value would lie past the range.
    told = {
        "version": _VERSION,
        "nets": [target.fingerprint() for target in observer.targets],
        "layers": [layers.fingerprint() for layers in observer.layers],
        "values": _values(observer, data.cases.x[:_PROBES]),
        "data": data.fingerprint(),
        "device": observer.targets[0].device.type,
    }

    def fits(kept: dict[str, Tensor]) -> bool:
        return set(kept) == set(_COLUMNS) and all(len(kept[c]) == observer.neurons for c in _COLUMNS[:4])

    def make() -> dict[str, Tensor]:
        log.info("fitting the range of %d neurons to %d training inputs", observer.neurons, len(data))
        return _fitted(observer, data.cases.x, chunks)

    kept = remembered("profiles", sha256(canonical_json(told).encode())[:32], make, fits)
    device = observer.targets[0].device
    lost = int((~(kept["low"].isfinite() & kept["high"].isfinite())).sum())
    if lost:
        log.warning("%d neurons are NaN or infinite on training data; criteria by range do not count them", lost)
    low, high, mean, std = (kept[column].to(device) for column in _COLUMNS[:4])
    return Profile(low, high, mean, std, int(kept["count"]), data)


def _values(observer: Observer, x: Tensor) -> str:
    """A digest of what the neurons are on these inputs, in one batch where it fits: the same net gives the same.

    Weights do not show a plain attribute or the code of ``forward``. Rounded to eight bits, for the number of threads
    changes the last ones; a value that rounds the other way costs no more than the fit.
    """
    values = observer.all(x, Chunks(_PROBES)).neurons
    return sha256((values.to(torch.bfloat16) + 0.0).cpu().contiguous().view(torch.uint8).numpy().tobytes())[:16]


@dataclass(frozen=True, slots=True)
class _Moments:
    """Of ``count`` inputs; ``squares`` are sums of squared distances from the mean, in double precision."""

    low: Tensor
    high: Tensor
    mean: Tensor
    squares: Tensor
    count: int

    def with_(self, other: "_Moments") -> "_Moments":
        """Of both together, as exactly as of all at once (Chan et al. 1983)."""
        count = self.count + other.count
        apart = other.mean - self.mean
        return _Moments(
            torch.minimum(self.low, other.low),
            torch.maximum(self.high, other.high),
            self.mean + apart * (other.count / count),
            self.squares + other.squares + apart**2 * (self.count * other.count / count),
            count,
        )


def _fitted(observer: Observer, x: Tensor, chunks: Chunks) -> dict[str, Tensor]:
    moments: list[_Moments] = []
    for start in range(0, len(x), _ROWS):
        parts = chunks.map_all(lambda block: _moments(observer, block), x[start : start + _ROWS])
        low, high, mean, squares, count = (part.unbind() for part in parts)
        found = [_Moments(*each) for each in zip(low, high, mean, squares, map(int, count), strict=True)]
        moments = [reduce(_Moments.with_, [*moments, *found])]
    whole = moments[0]
    std = (whole.squares / whole.count).sqrt().to(whole.low.dtype)
    columns = (whole.low, whole.high, whole.mean.to(whole.low.dtype), std, torch.tensor(whole.count))
    return {name: column.cpu() for name, column in zip(_COLUMNS, columns, strict=True)}


def _moments(observer: Observer, x: Tensor) -> tuple[Tensor, ...]:
    """Those of one chunk, as rows to be joined."""
    with torch.no_grad():
        values = observer(x.to(observer.targets[0].device)).neurons
    low, high = values.amin(0), values.amax(0)
    doubled = values.double()
    mean = doubled.mean(0)
    squares = (doubled - mean).square().sum(0)
    return low[None], high[None], mean[None], squares[None], torch.tensor([len(x)])
