"""DeepHunter's mutation: image transforms that are to keep what people see."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.changes import changes, few_or_small
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.core.shapes import column
from assay.core.transforms import AFFINE, KINDS, Drawn, check_images, draw, transformed
from assay.subjects.bench import Bench

# Which kinds may come again and again; all others of a group come once in a line.
REPEATED = {"paper": ("contrast", "brightness", "blur", "noise"), "code": ("noise", "pixels")}
ONCE = {"paper": AFFINE, "code": KINDS[:7]}
LINE = ("line_ref", "line_affine", "line_l0", "line_linf")
OPERATORS = KINDS  # what the column ``operator`` counts
MOST_NUMBERS = 2**25  # in the inputs tried at a time, so that large images do not fill the memory


@register("mutator", paper="DeepHunter 2019")
def transform(
    bench: Bench,
    cases: Cases,
    *,
    rng: Rows,
    group: str = "paper",
    tries: int = 50,
    alpha: float = 0.02,
    beta: float = 0.2,
) -> Cases:
    """A random transform whose result is like the reference; up to ``tries`` draws, else the case stays as it was.

    Like it is what differs in fewer than ``alpha`` of its values, or in none by ``beta`` of the range. The reference is
    the seed until the first affine transform, which moves the reference as well and is the only one of its line; what
    had changed before it still counts. ``group``: ``paper`` has four affine kinds and four that repeat; in ``code``,
    as in the public code, contrast, brightness and blur come once like affine ones, and up to nine pixels may change.

    Columns handed down: ``line_ref`` the reference, ``line_affine`` whether it has moved, ``line_l0`` and ``line_linf``
    what had changed before it moved. ``operator`` is the kind that was taken, -1 for none.

    Formula: x' = T(x), T drawn; accepted where ‖x' − ref‖₀ < alpha·pixels or ‖x' − ref‖∞ < beta·w, w the width of
    the bounds.
    """
    if group not in ONCE:
        raise UsageError(f"transform: group is {' or '.join(ONCE)}, got {group!r}")
    if tries < 1 or alpha < 0 or beta < 0:
        raise UsageError(f"transform: tries from 1 up, alpha and beta not negative; got {tries}, {alpha}, {beta}")
    spec = bench.target.spec
    check_images(spec.shape)
    return _Hunt(spec.bounds, group, alpha, beta).run(_begun(cases), rng, tries)


def _begun(cases: Cases) -> Cases:
    """The cases with the columns of their lines; where nothing has moved yet, the reference is the seed."""
    seed = cases.info.get("seed_x", cases.x)
    zero = torch.zeros_like(cases.origin)
    affine = cases.info.get("line_affine", zero.bool())
    reference = torch.where(column(affine, cases.x), cases.info.get("line_ref", seed), seed)
    used = cases.info.get("line_l0", zero), cases.info.get("line_linf", cases.x.new_zeros(len(cases)))
    return cases.note(**dict(zip(LINE, (reference, affine, *used), strict=True)))


@dataclass(frozen=True, slots=True)
class _Hunt:
    """The search for a transform that fits."""

    bounds: tuple[float, float]
    group: str
    alpha: float
    beta: float

    def run(self, cases: Cases, rng: Rows, tries: int) -> Cases:
        """Rows that have found nothing try on, twice as many draws a round; the first draw that fits is taken."""
        x, line = cases.x.clone(), {name: cases.info[name].clone() for name in LINE}
        line["operator"] = torch.full_like(cases.origin, -1)
        here = Cases(cases.x, cases.y, cases.origin, {name: cases.info[name] for name in LINE})
        now = dict(zip(LINE[2:], changes(here.x, here.info["line_ref"], self.bounds), strict=True))
        rows, start, size = torch.arange(len(cases), device=x.device), 0, 1
        while len(rows) and start < tries:
            size = min(size, tries - start, max(1, MOST_NUMBERS // (len(rows) * x[0].numel())))
            keys = torch.stack([rng[rows].at(start + i).key for i in range(size)], 1).flatten()
            each = rows.repeat_interleave(size)
            made, fits = self._tried(here[each], {name: values[each] for name, values in now.items()}, Rows(keys))
            fits = fits.view(-1, size)
            found = fits.any(1)
            first = (torch.arange(len(rows), device=x.device) * size + fits.int().argmax(1))[found]
            x[rows[found]] = made.x[first]
            for name, values in line.items():
                values[rows[found]] = made.info[name][first]
            rows, start, size = rows[~found], start + size, 2 * size
        return cases.with_x(x).note(**line)

    def _tried(self, cases: Cases, now: dict[str, Tensor], rng: Rows) -> tuple[Cases, Tensor]:
        """One draw for each row, and whether it fits; ``now`` is how far the cases are from their references."""
        drawn, moves = self._drawn(cases.info["line_affine"], rng)
        x = transformed(cases.x, drawn, self.bounds)
        reference = cases.info["line_ref"].clone()
        mine = moves.nonzero().squeeze(1)
        reference[mine] = transformed(reference[mine], drawn[mine], self.bounds)
        used = {name: torch.where(moves, values, cases.info[name]) for name, values in now.items()}
        count, largest = changes(x, reference, self.bounds)
        # Paper: what a transform that moves the reference makes is not looked at. Here: it must fit as well, because
        # interpolation spreads pixels that were changed before.
        fits = few_or_small(
            used["line_l0"] + count,
            torch.maximum(used["line_linf"], largest),
            x[0].numel(),
            self.bounds,
            self.alpha,
            self.beta,
        )
        fits &= (x != cases.x).flatten(1).any(1)  # a case that stays what it is costs a call for nothing
        line = {"line_ref": reference, "line_affine": cases.info["line_affine"] | moves, **used}
        return cases.with_x(x).note(operator=drawn.kind(), **line), fits

    def _drawn(self, affine: Tensor, rng: Rows) -> tuple[Drawn, Tensor]:
        """A transform of all kinds, or where the reference has moved already, of those that repeat."""
        again, once = REPEATED[self.group], ONCE[self.group]
        every, some = draw(rng, (*again, *once)), draw(rng, again)
        drawn = Drawn(torch.where(affine, some.entry, every.entry), every.rng)
        return drawn, drawn.is_one_of(once)
