"""Suites: tuples of attacks, and the attacks they name."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay.core.errors import UsageError
from assay.core.registry import Bound, bind, lookup, names
from assay.core.specs import Params, Step, canonical, did_you_mean, python_file, step, steps

# How many classes there must be for what an attack climbs: the difference of logits ratio looks at the third best, the
# targeted one at the fourth. With fewer they would climb something else under the same name.
LEAST_CLASSES = {"apgd_dlr": 3, "apgd_t": 4}


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """Attacks run as a cascade: only inputs that are still robust go on to the next.

    ``relative`` suites depend on what the model was trained with: ``seen`` is that, ``unseen`` the others of its list.
    """

    name: str
    summary: str
    paper: str = ""
    attacks: tuple[Step, ...] = ()
    each: bool = False  # every attack sees every input
    relative: bool = False


def parts_of(suite: Any, offered: Params, trained: tuple[Step, ...] | None) -> dict[str, dict[str, Bound]]:
    """The attacks of a suite in parts: ``seen`` and ``unseen`` stand apart, everything else is ``attacks``.

    ``trained`` are the attacks the model was trained with, None where nobody knows.
    """
    parts: dict[str, list[Any]] = {}
    for name, params in steps(suite):
        relative = isinstance(name, str) and name in names("suite") and lookup("suite", name)[1].relative
        if relative and trained is None:
            raise UsageError(f"suite {name!r}: nothing says what this model was trained with; name it: --seen fgsm,pgd")
        if not relative:
            parts.setdefault("attacks", []).append((name, params))
        elif name == "seen":
            if not trained:
                raise UsageError("suite 'seen': this model was trained without attacks; --suite unseen takes them all")
            parts["seen"] = [_with(member, params) for member in trained]
        else:
            known = {bound.entry.name for bound in attacks_of(trained, offered).values()} if trained else set()
            pool = lookup("suite", "unseen")[1].attacks
            parts["unseen"] = [_with(m, params) for m in pool if canonical(step(m)[0]) not in known]
    found = {part: attacks_of(members, offered) for part, members in (parts or {"attacks": []}).items()}
    labels = [label for attacks in found.values() for label in attacks]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise UsageError(f"{', '.join(twice)} stands in two parts of the suite ({', '.join(found)}); name it once")
    return found


def possible(attacks: Mapping[str, Bound], classes: int) -> tuple[dict[str, Bound], dict[str, str]]:
    """The attacks that a model of so many classes allows, and of each that is dropped or cut down the reason."""
    kept: dict[str, Bound] = {}
    told: dict[str, str] = {}
    for label, attack in attacks.items():
        least, targets = LEAST_CLASSES.get(attack.entry.name, 2), attack.params.get("targets")
        if classes < least:
            told[label] = f"dropped: what it climbs needs {least} classes, and there are {classes}"
            continue
        if isinstance(targets, int) and targets > classes - 1:
            told[label] = f"towards {classes - 1} other classes, not {targets}: there are no more"
            attack = replace(attack, params={**attack.params, "targets": classes - 1})
        kept[label] = attack
    if attacks and not kept:
        raise UsageError(
            f"no attack of the suite is possible with {classes} classes ({', '.join(attacks)}); "
            "apgd_ce, fab_t and square are"
        )
    return kept, told


def wants_each(suite: Any) -> bool:
    """Whether a suite among those named measures every attack on every input."""
    own = {canonical(n): n for n in names("suite")}
    known = [own[canonical(n)] for n, _ in steps(suite) if isinstance(n, str) and canonical(n) in own]
    return any(lookup("suite", name)[1].each for name in known)


def attacks_of(suite: Any, offered: Params) -> dict[str, Bound]:
    """The attacks of a suite by name, in order; members of a list may be suites, or objects of other libraries."""
    found: list[tuple[Step, Bound]] = []
    for name, params in steps(suite):
        if not isinstance(name, str):
            found.append(((name, params), bind("attack", name, params, offered)))
        elif python_file(name) is None and canonical(name) in map(canonical, names("suite")):
            members: tuple[Step, ...] = lookup("suite", name)[1].attacks
            found += [(m, bind("attack", *_with(m, params), offered)) for m in members]
        elif python_file(name) is None and canonical(name) not in map(canonical, names("attack")):
            known = [*names("attack"), *names("suite")]
            raise UsageError(f"unknown attack or suite {name!r}; {did_you_mean(name, known)}")
        else:
            found.append(((name, params), bind("attack", name, params, offered)))
    if not found:
        raise UsageError("the suite is empty; name attacks, such as --suite fgsm,pgd")
    return _labelled(found)


def _with(member: Step, params: Params) -> tuple[str, Params]:
    name, own = step(member)
    return name, {**own, **params}


def _labelled(found: list[tuple[Step, Bound]]) -> dict[str, Bound]:
    """The plain name, or the name with what was set where one attack stands twice."""
    plain = [bound.entry.name for _, bound in found]
    labelled: dict[str, Bound] = {}
    for given, bound in found:
        name = bound.entry.name
        if plain.count(name) > 1:
            inside = ", ".join(f"{k}={v}" for k, v in step(given)[1].items())
            name = f"{name}({inside})" if inside else bound.text if bound.entry.facts is not None else name
        if name in labelled:
            raise UsageError(f"the suite names {name} twice")
        labelled[name] = bound
    return labelled
