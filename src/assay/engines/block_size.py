"""How many cases are worked at once: as many as suit the memory of a GPU. No result depends on it, only the speed."""

import logging
from collections.abc import Callable

import torch

from assay.core import store
from assay.core.cases import Cases
from assay.core.errors import OutOfMemory, UsageError, is_out_of_memory
from assay.core.losses import log_odds
from assay.engines.cluster import Cluster, room
from assay.subjects.asked import Asked
from assay.subjects.target import Target

log = logging.getLogger("assay")

AUTO = "auto"
LEAST = 256  # fills a CPU
MOST = 16384  # more gains nothing on the largest GPUs
KEPT = 2048  # where blocks are commits, or time is limited: what a kill or the clock costs stays small
SHARE = 0.8  # of the free memory
PASS_BYTES = 8 * 2**30
COPIES = 16  # of its input that an attack holds for a row: starts, steps, best so far …

Work = Callable[[], object]
# The most bytes that work takes while it lasts, and those that are free.
Probe = Callable[[Work], tuple[int, int]]


def size_for(
    batch: int | str,
    target: Target,
    cases: Cases,
    *,
    save: str | None,
    fresh: bool,
    fixed: bool,
    timed: bool,
    cluster: Cluster | None,
) -> int:
    """Cases a block of an evaluation: few enough for commits, for a limit of time, for every worker to have some."""
    most, share = MOST if save is None and not timed else KEPT, 1.0
    if cluster is not None:
        share = cluster.gpu_share or 1.0
        sized = batch == AUTO and target.device.type == "cuda"  # else nobody asks how many there are
        workers = cluster.workers or (room(cluster, share) if sized else 0) or 1
        most = min(most, max(LEAST, -(-len(cases) // workers)))
    return block_size(batch, target, cases, kept=kept_size(save, fresh=fresh), fixed=fixed, most=most, share=share)


def block_size(
    batch: int | str,
    target: Target,
    cases: Cases,
    *,
    kept: int | None = None,
    fixed: bool = False,
    most: int = MOST,
    share: float = 1.0,
    probe: Probe | None = None,
) -> int:
    """Cases a block: ``batch`` if it is a number; ``auto`` is what the run at hand was ``kept`` with, else what fits.

    On a CPU, for a target whose questions are counted, and where the size is to be ``fixed`` on whatever machine, that
    is LEAST. On a GPU it is doubled from
    there up to ``most`` while the work on so many takes no more than SHARE of the ``share`` of memory that is free.
    """
    if isinstance(batch, int):
        if batch < 1:
            raise UsageError(f"batch is auto or a number from 1 up, got {batch}")
        return batch
    if batch != AUTO:
        raise UsageError(f"batch is auto or a number from 1 up, got {batch!r}")
    if kept is not None:
        return kept
    if fixed or isinstance(target, Asked) or (probe is None and target.device.type != "cuda"):
        return LEAST
    sample = cases[:LEAST]
    try:
        taken, free = (probe or _on_cuda(target.device))(lambda: _climb(target, sample))
    except (RuntimeError, MemoryError, OutOfMemory) as error:
        if not is_out_of_memory(error):
            raise
        return LEAST  # blocks are halved where they do not fit
    row = sample.x[:1].numel() * sample.x.element_size()
    size = largest(int(free * share), -(-taken // len(sample)) + COPIES * row, most)
    log.info("blocks of %d cases, by %.1f GiB of free memory", size, free * share / 2**30)
    return size


def largest(free: int, per_row: int, most: int = MOST) -> int:
    """LEAST, doubled up to ``most`` while so many rows fit in SHARE of the free bytes.

    >>> largest(10 * 2**30, 2**20), largest(2**20, 2**20)
    (8192, 256)
    """
    size = LEAST
    while 2 * size <= most and 2 * size * per_row <= SHARE * free:
        size *= 2
    return size


def rows_at_once(work: Work, rows: int, most: int, device: torch.device, probe: Probe | None = None) -> int:
    """How many rows of such ``work``, shown on so many ``rows``, one pass is to take, ``most`` at most.

    Passes of tens of gigabytes are no faster, and come in many sizes, for each of which a GPU looks for memory anew.
    """
    taken, _ = (probe or _on_cuda(device))(work)
    return min(most, max(rows, PASS_BYTES // -(-max(taken, 1) // max(rows, 1))))


def kept_size(save: str | None, *, fresh: bool) -> int | None:
    """The size of the blocks of a run that is to be continued."""
    run = {} if save is None or fresh else store.begun_with(store.place(save)).get("run", {})
    size = run.get("block") if run.get("kind") == "eval" else None
    return size if isinstance(size, int) else None


def _climb(target: Target, cases: Cases) -> None:
    """One step of an attack: an answer, and its gradient where there is one."""
    x = cases.x.detach().to(target.device)
    if "grad" not in target.gives:
        with torch.no_grad():
            target(x)
        return
    x.requires_grad_()
    with torch.enable_grad():
        loss = log_odds(target(x), cases.y.to(target.device)).sum()
    if loss.requires_grad:  # a net may cut its own graph
        torch.autograd.grad(loss, x, allow_unused=True)


def _on_cuda(device: torch.device) -> Probe:
    def probe(work: Work) -> tuple[int, int]:
        work()  # libraries take their own share with the first call
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        taken = torch.cuda.max_memory_allocated(device) - before
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # free for us
        return taken, torch.cuda.mem_get_info(device)[0] + held

    return probe
