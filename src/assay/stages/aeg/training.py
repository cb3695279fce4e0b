"""Making a generator: domains of a data set, the shared training loop, and what the reconstructions are like."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.core import norms
from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.files import canonical_json, sha256
from assay.core.images import ssim, unit_range
from assay.core.randomness import Stream
from assay.stages import workshop
from assay.stages.aeg.cycle import CycleGan
from assay.stages.aeg.domains import Domains, domains
from assay.stages.aeg.generator import Aeg, Columns, scaled
from assay.stages.aeg.making import Making
from assay.stages.aeg.nets import depth_of, margins
from assay.stages.aeg.sheet import CAPTION, SHEET, sheet
from assay.stages.trainers.loop import Task, fit
from assay.stages.trainers.watch import State, Watch
from assay.subjects.asked import Asked
from assay.subjects.bench import Bench, Data
from assay.subjects.sources.load import pick_device

VERSION = 1  # of all that a making means: a change here makes every generator anew
WHAT = "aeg"


def aeg_of(bench: Bench, making: Making) -> Aeg:
    """The generator of the bench's training data: from this run, from the cache, or trained now."""
    making.check()
    depth_of(bench.target.spec.shape)  # refuses what is no image
    data = bench.training
    if data is None:
        raise UsageError(
            "the generator learns from images like those the model is used on, and none are known here; give them, "
            "labels are not needed: --training DATA"
        )
    where = pick_device() if isinstance(bench.target, Asked) else bench.target.device
    key = bench.once(f"{WHAT} of {making}", lambda: key_of(data, making))

    def room() -> Chunks:
        return Chunks(bench.chunks.size, alone=True)  # another net than the target

    def make(watch: Watch) -> Columns:
        return trained(data, making, where, watch, room()).columns()

    def opened() -> Aeg:
        columns = workshop.made(bench, WHAT, key, make, fits, lambda kept: shown(Aeg.of(kept), data))
        return named(bench, replace(Aeg.of(columns).to(where), chunks=room()))

    return bench.once(f"{WHAT} opened {key}", opened)


def named(bench: Bench, aeg: Aeg) -> Aeg:
    """The generator, named to whoever asked for the work."""
    error = aeg.facts.get("measured", {}).get("cycle_error")
    how_good = "" if error is None else f", cycle error {error:.3f} of the range"
    bench.tell({"generator": f"{aeg.name}{how_good} ({aeg.fingerprint()})"})
    return aeg


def key_of(data: Data, making: Making) -> str:
    """A digest of all that the generator depends on."""
    told = [VERSION, data.fingerprint(), data.spec.shape, data.spec.bounds, data.spec.classes, making.to_json()]
    return sha256(canonical_json(told).encode())[:32]


def trained(data: Data, making: Making, device: torch.device, watch: Watch, chunks: Chunks | None = None) -> Aeg:
    """A generator trained on the data."""
    making.check()
    shape, bounds = data.spec.shape, data.spec.bounds
    depth_of(shape)
    rows = domains(data, making)
    held = Cases.of(data.cases.x[rows.held])
    left, right, above, below = margins(shape)
    rng = Stream(making.seed, ("aeg",))
    with torch.random.fork_rng([]):
        torch.manual_seed(rng.at("weights").generator().initial_seed())
        net = CycleGan(shape, (shape[1] + above + below, shape[2] + left + right), making).to(device)
    # The loop counts steps and shuffles; the images of a step are drawn below, because a step takes two of them.
    steps, kept = (_counted(torch.zeros(making.images, 1)), _counted(scaled(held.x, shape, bounds)))
    task = Task(_loss(data, rows, making, device), still=True, epoch=lambda net: _cycle(net).take_snapshot())
    noted = _Noted(watch)
    made = fit(net, steps, kept, making.plan(), rng=rng.at("fit"), watch=noted, judge=_judge, task=task)
    assert isinstance(made, CycleGan)
    facts = _facts(data, rows, making)
    generator = Aeg(*_snapshots(made), facts, chunks or Chunks(alone=True))
    # Without its clock, so that the same training gives the same bytes.
    log = [{name: value for name, value in row.items() if name != "seconds"} for row in noted.log]
    facts |= {"measured": measured(generator, held.x), "log": log}
    return generator


class _Noted:
    """Another who looks on, and the epochs so far."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.log = watch, list[dict[str, float]]()
        self.batch, self.note = watch.batch, watch.note

    def resume(self) -> State | None:
        state = self.watch.resume()
        self.log = state.log if state is not None else []
        return state

    def epoch(self, state: State, net: nn.Module) -> None:
        self.log = state.log
        self.watch.epoch(state, net)


def _counted(x: Tensor) -> Cases:
    """Cases that the loop takes: it learns from labelled ones only, and here labels mean nothing."""
    return Cases.of(x, torch.zeros(len(x), dtype=torch.int64))


def _cycle(net: nn.Module) -> CycleGan:
    assert isinstance(net, CycleGan)
    return net


def _loss(data: Data, rows: Domains, making: Making, device: torch.device) -> Any:
    """The loss of a step: as many images of each domain as the batch has rows, drawn from torch's own generator."""

    def drawn(domain: Tensor, count: int) -> Tensor:
        x = data.cases.x[domain[torch.randint(len(domain), (count,))]].to(device)
        if making.flip:
            mirrored = (torch.rand(count) < 0.5).to(device)
            x = torch.where(mirrored[:, None, None, None], x.flip(3), x)
        return scaled(x, data.spec.shape, data.spec.bounds)

    def loss(net: nn.Module, x: Tensor, y: Tensor, places: Tensor) -> Tensor:
        return _cycle(net).loss(drawn(rows.x, len(places)), drawn(rows.y, len(places)))

    return loss


def _judge(net: nn.Module, val: Cases) -> dict[str, float]:
    """Mean distance of reconstructions from images, as a share of the range; the last epoch is the best one.

    Nothing here says which epoch makes the best test cases, and snapshots hold several.
    """
    cycle = _cycle(net)

    def error(x: Tensor) -> Tensor:
        with torch.no_grad():
            there, back = cycle.back(cycle.there(x)), cycle.there(cycle.back(x))
        both: Tensor = (there - x).abs().sum() + (back - x).abs().sum()
        return both[None]

    total = sum(Chunks(100, alone=True).map(error, val.x).tolist())
    return {"val_loss": total / 4 / val.x.numel(), "score": float(cycle.epochs)}


def _snapshots(net: CycleGan) -> tuple[Tensor, Tensor]:
    """The snapshots there are: fewer than were asked for where there were fewer epochs."""
    count = min(net.making.snapshots, int(net.epochs))
    return net.kept_there[:count].clone(), net.kept_back[:count].clone()


def _facts(data: Data, rows: Domains, making: Making) -> dict[str, Any]:
    return {
        "shape": list(data.spec.shape),
        "bounds": list(data.spec.bounds),
        "data": data.name,
        "data_fingerprint": data.fingerprint(),
        "making": making.to_json(),
        "domains": [len(rows.x), len(rows.y)],
        "kept_back": len(rows.held),
    }


def measured(aeg: Aeg, x: Tensor) -> dict[str, float]:
    """How far reconstructions by the newest snapshot are from images, in both directions on average."""
    if not len(x):
        return {}
    told: dict[str, float] = {"images": len(x)}
    both = [aeg.made(x, torch.full((len(x),), way)) for way in (0, 1)]
    low, high = aeg.bounds
    unit = unit_range(x, aeg.bounds)
    pairs = [(made, unit_range(made, aeg.bounds)) for made in both]
    told["cycle_error"] = sum(float((made - x).abs().mean()) for made in both) / 2 / (high - low)
    for norm in ("l2", "linf"):  # in the range 0 to 1, like the error
        told[norm] = sum(float(norms.size(made - x, norm).mean()) for made in both) / 2 / (high - low)
    told["ssim"] = sum(float(ssim(seen, unit).mean()) for _, seen in pairs) / 2
    return {name: round(value, 6) for name, value in told.items()}


def shown(aeg: Aeg, data: Data) -> workshop.Shown:
    """What people may see of it: its facts, and images with what becomes of them."""
    return workshop.Shown({"name": aeg.name, "sheet": CAPTION, **aeg.facts}, {SHEET: sheet(aeg, data)})


def fits(columns: Mapping[str, Tensor]) -> bool:
    """Whether these tensors are a generator."""
    try:
        Aeg.of(columns)
    except (UsageError, KeyError, ValueError):
        return False
    return True
