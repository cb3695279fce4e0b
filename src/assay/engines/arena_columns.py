"""The columns of an arena: what all its models are measured by, on the same inputs.

White-box numbers (attacks made anew on each model) and static ones (made on the original) are columns of their own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.core.specs import canonical, did_you_mean, sliced, split, step, written
from assay.core.stats import wilson, z_of
from assay.core.units import budget
from assay.engines.evaluation import Evaluation
from assay.recipes.suite import attacks_of, wants_each

STRONG = {"steps": 50, "restarts": 5}  # of PGD, white box and static
MILD = {"spatial": {"rotation": 15, "shift": 0.05}}  # at twice that no model withstands, and all are alike
USUAL = ("clean", "static", "pgd", "autoattack", "linf", "l2", "l1", "spatial", "corruptions")
IMAGES = ("spatial", "corruptions")  # what only images have
NORMS = ("linf", "l2", "l1")
WHITE, STATIC, CLEAN = "white box", "static", "clean"
UNSEEN = "unseen"  # the column that is the mean of those in other norms and of spatial


@dataclass(frozen=True, slots=True)
class Heading:
    """One column: a suite in a ball, over the first ``cases`` inputs (all, where that is None).

    ``clean`` needs no suite: it is read off any evaluation of the same inputs.
    """

    name: str
    kind: str
    suite: str
    eps: float | None
    norm: str
    cases: int | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Headings with one key are measured by one evaluation."""
        return (self.suite, self.eps, self.norm, self.cases)

    def to_json(self) -> dict[str, Any]:
        """The attacks with all their parameters, which is what makes two columns the same."""
        ball = {"eps": self.eps, "norm": self.norm}
        attacks = [] if self.kind == CLEAN else [a.text for a in attacks_of(self.suite, ball).values()]
        several = {"every": True} if wants_each(self.suite) else {}
        return {"kind": self.kind, "attacks": attacks, **several, **({"cases": self.cases} if self.cases else {})}


def headings(text: str, eps: str | float, norm: str, shape: Sequence[int]) -> tuple[Heading, ...]:
    """The columns that a comma list names, "" being the usual ones.

    A name may have parameters of its attacks and, behind it, how many inputs: ``l2(eps=2)``, ``autoattack[:200]``.
    """
    if text:
        parts = [_parsed(part) for part in split(text)]
    else:
        usual = [name for name in USUAL if name != norm and (len(shape) == 3 or name not in IMAGES)]
        parts = [(name, {}, None) for name in usual]
    found = tuple(_heading(name, params, cases, budget(eps), norm, shape) for name, params, cases in parts)
    names = [heading.name for heading in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"the columns name {name} twice")
    return found


def groups(found: Sequence[Heading]) -> list[list[Heading]]:
    """Headings that one evaluation measures together; clean goes along with another of the same inputs."""
    kept: dict[tuple[Any, ...], list[Heading]] = {}
    for heading in found:
        if heading.kind != CLEAN:
            kept.setdefault(heading.key, []).append(heading)
    for heading in found:
        if heading.kind == CLEAN:
            beside = next((some for key, some in kept.items() if key[-1] == heading.cases), None)
            (kept.setdefault(heading.key, []) if beside is None else beside).append(heading)
    return list(kept.values())


def ball_in(norm: str, eps: float, home: str, shape: Sequence[int]) -> float:
    """The usual size of a ball in another norm: in l2 a quarter of the way to a corner of the linf one, in l1 a
    sixteenth, which is near what papers take (MNIST: linf 0.3, l2 2.1, l1 15).

    >>> ball_in("l2", 0.3, "linf", (1, 28, 28)), ball_in("linf", 2.0, "l2", (1, 4, 4))
    (2.1, 2.0)
    """
    d = math.prod(shape)
    reach = {"linf": 1.0, "l2": math.sqrt(d) / 4, "l1": d / 16}
    return float(f"{eps / reach[home] * reach[norm]:.4g}")


def _parsed(text: str) -> tuple[str, dict[str, Any], int | None]:
    whole, rows = sliced(text)
    if (rows.start, rows.step) != (None, None) or (rows.stop is not None and rows.stop < 1):
        raise UsageError(f"a column takes the first inputs: {whole}[:200], got {text!r}")
    return (*step(whole), rows.stop)


def _heading(
    name: str, params: Mapping[str, Any], cases: int | None, eps: float, norm: str, shape: Sequence[int]
) -> Heading:
    given = dict(params)
    if canonical(name) == CLEAN:
        return Heading(CLEAN, CLEAN, "fgsm", eps, norm, cases)  # its attack, a cheap one, is not looked at
    if name in NORMS:
        if norm not in NORMS:
            raise UsageError(f"a ball of {norm} says nothing of how large one of {name} is; leave the column out")
        size = budget(given.pop("eps", ball_in(name, eps, norm, shape)))
        return Heading(_named(name, params), WHITE, _named("pgd", STRONG | given), size, name, cases)
    if name in (STATIC, "pgd"):
        kind, label = (STATIC if name == STATIC else WHITE), _named(name, params)
        return Heading(label, kind, _named("pgd", STRONG | given), eps, norm, cases)
    heading = Heading(_named(name, params), WHITE, _named(name, MILD.get(name, {}) | given), eps, norm, cases)
    try:
        heading.to_json()
    except UsageError as error:
        known = did_you_mean(name, USUAL)
        raise UsageError(f"column {name!r} cannot be measured: {error} (columns: {known})") from None
    return heading


def _named(name: str, params: Mapping[str, Any]) -> str:
    inside = ", ".join(f"{key}={written(value)}" for key, value in params.items())
    return f"{name}({inside})" if inside else name


def told_of(heading: Heading, result: Evaluation) -> dict[str, Any]:
    """What an evaluation says under a heading: counts, interval, and which inputs are right, for pairing."""
    right, of = _rows(heading, result)
    n, total = len(right), int(right.sum())
    told: dict[str, Any] = {"accuracy": round(total / (n * of), 6), "right": total, "n": n, "of": of}
    told["ci95"] = [round(end, 6) for end in (wilson(total, n) if of == 1 else interval(right / of))]
    unreliable = [] if heading.kind == CLEAN else sorted(w["name"] for w in result.warnings)
    return told | {"rows": packed(right, of)} | ({"unreliable": unreliable} if unreliable else {})


def _rows(heading: Heading, result: Evaluation) -> tuple[Tensor, int]:
    """How many of so many answers to each input are right, (N,); one answer but where every attack counts alone."""
    right = torch.cat([block.right for block in result.blocks])
    if heading.kind == CLEAN:
        return right.long(), 1
    part = "static/" if heading.kind == STATIC else "attacks/"
    keys = [key for key in result.blocks[0].broken if key.startswith(part)]
    broken = torch.stack([torch.cat([block.broken[key] for block in result.blocks]) for key in keys])
    left = right & ~broken
    return (left.sum(0), len(keys)) if wants_each(heading.suite) else (left.all(0).long(), 1)


def interval(shares: Tensor) -> tuple[float, float]:
    """The 95 % interval of a mean of shares, an input each."""
    middle = float(shares.double().mean())
    half = z_of(0.95) * float(shares.double().std()) / math.sqrt(len(shares)) if len(shares) > 1 else 1.0
    return max(0.0, middle - half), min(1.0, middle + half)


def packed(right: Tensor, of: int) -> str:
    """The right answers to each input as text: a bit an input, or two hexadecimal digits where there are several.

    >>> packed(torch.tensor([1, 0, 1, 1, 1]), 1), packed(torch.tensor([65, 2]), 65)
    ('b8', '4102')
    """
    if of > 255:
        raise UsageError(f"a column counts at most 255 attacks an input, got {of}; name fewer")
    if of > 1:
        return bytes(right.tolist()).hex()
    bits = "".join(str(int(one)) for one in right.tolist())
    return "".join(f"{int(bits[at : at + 4].ljust(4, '0'), 2):x}" for at in range(0, len(bits), 4))


def unpacked(told: Mapping[str, Any]) -> list[float]:
    """The share of right answers to each input, from what ``told_of`` tells."""
    text, n, of = str(told["rows"]), int(told["n"]), int(told["of"])
    if of > 1:
        return [count / of for count in bytes.fromhex(text)]
    return [float(bit) for digit in text for bit in f"{int(digit, 16):04b}"][:n]
