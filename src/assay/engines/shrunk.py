"""Failing cases made smaller: no more of their seed is changed than it takes to fail."""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor

from assay.core import norms
from assay.core.amounts import as_image, is_on_levels
from assay.core.cases import Cases, inside
from assay.core.errors import UsageError
from assay.core.images import ssim, unit_range
from assay.core.questions import Ask
from assay.core.shrink import changed, entries, passes_of, pixels
from assay.core.shrink import shrunk as passed
from assay.stages.oracles.wrong_label import wrong_label
from assay.subjects.bench import Bench
from assay.subjects.observer import COLUMNS

Oracle = Callable[[Bench, Cases], Tensor]

# What a model or a measure said of the input, which is another one now.
OF_THE_INPUT = ("pred", "others_pred", "logits", "others", "gradient", "linf", "l2", "ssim", "confidence", *COLUMNS)
NO_CLASS = -1  # of an answer with NaN or infinity


def shrunk(
    bench: Bench,
    cases: Cases,
    oracle: Oracle = wrong_label,
    *,
    by: str = "auto",
    any_failure: bool = False,
    budget: int | None = None,
    watch: Callable[[int], None] | None = None,
) -> Cases:
    """The same cases with as little changed of their seeds (column ``seed_x``) as it takes to fail by the oracle.

    ``by`` are passes, done one after another. ``blocks(side=4)``, ``pixels``, ``channels`` of images and ``entries`` of
    anything take parts of the change back; ``line(steps=10)`` makes all of it smaller, ``eight_bit`` lays it on the
    levels that an image of 8 bits has. ``auto`` is 8 bits, blocks, pixels, line, 8 bits, or entries and line where
    inputs are no images. A case keeps the class that the target gives it, unless ``any_failure`` will do. A case that
    does not fail is left as it is, and so is one whose shrunk form fails no longer when it is asked anew in another
    batch. ``budget`` is the most questions of a case. ``watch`` is told how many questions were asked each time.

    Columns: ``failing``, ``minimal`` (nothing that the last pass with parts goes by can be taken back), ``questions``,
    ``pred``, with ``eight_bit`` among the passes whether what an image of 8 bits holds of the case fails, and before
    (``_before``) and after: ``changed`` (pixels, or entries), ``l0``, ``l2``, ``linf``.
    """
    passes = passes_of(by, tuple(cases.x.shape[1:]))
    _check(bench, cases, budget)
    device = bench.target.device
    # The seeds are what the oracle may compare with, so they stay; what was said of the input is no longer true.
    base = cases.drop(*OF_THE_INPUT).note(seed_x=cases.parent).to(device)
    tell = watch or (lambda _: None)
    with ExitStack() as at_work:
        for net in (bench.target, *bench.roles.values()):
            at_work.enter_context(net.ready())
        own, _ = _said(bench, base)

        def ask(rows: Tensor, x: Tensor) -> Tensor:
            tell(len(rows))
            return _surely(bench, oracle, base[rows].with_x(x), None if any_failure else own[rows])

        bounds = bench.target.spec.bounds
        made = passed(base.x, base.parent, ask, passes, budget, bounds)
        x, minimal = _asked_anew(base, made.x, made.minimal, ask)
        asked_for = any(each.text == "eight_bit" for each in passes)
        image = _fails_as_image(x, base.parent, bounds, ask) if asked_for else None
        pred = bench.logits(base.with_x(x)).argmax(1)
    told = {"failing": made.failing, "minimal": minimal, "questions": made.asked, "pred": pred}
    told |= {} if image is None else {"eight_bit": image}
    sizes = _sizes(base.x, base.parent, "_before") | _sizes(x, base.parent)
    if x.dim() == 4:
        sizes["ssim"] = ssim(*(unit_range(some, bounds) for some in (x, base.parent)))
    return base.with_x(x).note(**told, **sizes).to("cpu")


def _check(bench: Bench, cases: Cases, budget: int | None) -> None:
    if budget is not None and budget < 1:
        raise UsageError(f"the budget of questions of a case must be at least 1, got {budget}")
    for name, some in (("cases", cases.x), ("seeds", cases.parent)):
        if some.shape != cases.x.shape:
            raise UsageError(f"seeds have the shape of cases, {tuple(cases.x.shape)}; got {tuple(some.shape)}")
        outside = (~inside(some, bench.target.spec.bounds)).nonzero().squeeze(1)
        if len(outside):
            low, high = bench.target.spec.bounds
            raise UsageError(f"{name} lie within [{low:g}, {high:g}]; {len(outside)} do not, the first is {outside[0]}")


def _said(bench: Bench, cases: Cases) -> tuple[Tensor, Tensor]:
    """The class of each case and the lead of its score over the next one, (N,) each; no class where it is no number."""
    logits = bench.logits(cases)
    finite = logits.isfinite().all(1)
    best = logits.nan_to_num().topk(min(2, logits.shape[1]), 1).values
    return torch.where(finite, logits.argmax(1), NO_CLASS), torch.where(finite, best[:, 0] - best[:, -1], 0.0)


def _surely(bench: Bench, oracle: Oracle, cases: Cases, own: Tensor | None) -> Tensor:
    """How surely each case fails, and with the class ``own`` where that is to stay; 0 where it does not, (N,)."""
    cases = cases.note(logits=bench.logits(cases))
    said, lead = _said(bench, cases)
    # As when failures are stored: an answer that is no number is one whatever the oracle says.
    fails = oracle(bench, cases).to(said.device) | (said == NO_CLASS)
    if own is not None:
        fails &= said == own
        # The lead of its own class is what a change may use up; one that may end anywhere has no such measure.
        return torch.where(fails, lead.clamp_min(torch.finfo(torch.float32).tiny), 0.0)
    return fails.float()


def _asked_anew(base: Cases, x: Tensor, minimal: Tensor, ask: Ask) -> tuple[Tensor, Tensor]:
    """The inputs and who is minimal, once more all in one batch; those that fail there no longer are as they were."""
    good = ask(torch.arange(len(x), device=x.device), x) > 0
    here = good.view(-1, *[1] * (x.dim() - 1))
    return torch.where(here, x, base.x), minimal & good


def _fails_as_image(x: Tensor, seeds: Tensor, bounds: tuple[float, float], ask: Ask) -> Tensor:
    """Which inputs have their change on levels of 8 bits and fail as an image of them is read, (N,)."""
    fails = is_on_levels(x, seeds, bounds)
    rows = fails.nonzero().squeeze(1)
    fails[rows] = ask(rows, as_image(x[rows], bounds)) > 0
    return fails


def _sizes(x: Tensor, seeds: Tensor, when: str = "") -> dict[str, Tensor]:
    """How much of the seeds is changed."""
    shape = tuple(x.shape[1:])
    place = pixels(shape) if len(shape) == 3 else entries(shape)
    delta = x - seeds
    told = {"changed": changed(x, seeds, place).sum(1), "l0": norms.size(delta, "l0").long()}
    told |= {"l2": norms.size(delta, "l2"), "linf": norms.size(delta, "linf")}
    return {f"{name}{when}": column for name, column in told.items()}
