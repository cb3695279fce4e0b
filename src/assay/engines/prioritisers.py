"""Ways to order tests, by name: a score means its largest values first, a selector means itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.errors import UsageError
from assay.core.registry import Bound, bind, lookup, names
from assay.core.specs import canonical, did_you_mean, python_file, split, step
from assay.subjects.layers import Layers, layers_of
from assay.subjects.observer import Observer
from assay.subjects.target import Target

EVERY = "all"
_CRITERIA = (
    *(f"nbc(std={sigma})" for sigma in (0, 0.5, 1)),
    *(f"snac(std={sigma})" for sigma in (0, 0.5, 1)),
    *(f"nc(threshold={level}, scaled=false)" for level in (0, 0.75)),
    *(f"tknc(k={k})" for k in (1, 2, 3)),
    "kmnc(k=2)",
)
_SURPRISE = ("dsa(share=0.3)", "lsa", "mdsa", "mlsa", "mmdsa")
# The prioritisers of Weiss and Tonella (ISSTA 2022) in their settings.
REPLICATION = (
    *("gini", "max_p", "margin", "entropy", "mc_dropout"),
    *_SURPRISE,
    *(f"ctm(criterion={written})" for written in _CRITERIA),
    *(f"cam(criterion={written})" for written in _CRITERIA),
    *(f"cam(criterion=sc(score={written}), layers=last)" for written in _SURPRISE),
)


@dataclass(frozen=True, slots=True)
class Method:
    """A way to order tests: as asked for, and the score or selector behind it."""

    by: str
    stage: Bound

    @property
    def scores(self) -> bool:
        return self.stage.entry.kind == "score"


def methods_of(by: str | Sequence[str], layers: str | None, seed: int) -> list[Method]:
    """The methods of a comma list or a sequence, each once; ``layers`` and ``seed`` go to those that have such a
    parameter and do not set it.
    """
    parts = [part for text in ([by] if isinstance(by, str) else by) for part in split(text)]
    asked = dict.fromkeys(text for part in parts for text in (REPLICATION if part == EVERY else (part,)))
    if not asked:
        raise UsageError("name at least one way to order the tests, such as --by gini; see docs/prioritising.md")
    methods = [Method(text, _stage(text, {"layers": layers, "seed": seed})) for text in asked]
    for method in methods:
        list(parts_of(method.stage))  # a wrong name inside brackets is told before the work
    return list({method.stage.text: method for method in reversed(methods)}.values())[::-1]


def _stage(text: str, offered: Mapping[str, Any]) -> Bound:
    name, params = step(text)
    return bind(_kind(name), name, params, offered)


def _kind(name: str) -> str:
    if python_file(name) is not None:  # selectors are told apart by the randomness they are given
        return "selector" if any(p.name == "rng" for p in lookup("selector", name)[0].parameters) else "score"
    for kind in ("score", "selector"):
        if canonical(name) in map(canonical, names(kind)):
            return kind
    known = [EVERY, *names("score"), *names("selector")]
    raise UsageError(f"no score and no selector is called {name!r}; {did_you_mean(name, known)}")


def parts_of(stage: Bound) -> Iterator[Bound]:
    """The stage with the scores and criteria that its parameters name."""
    yield stage
    for kind in ("score", "criterion"):
        inner = stage.params.get(kind)
        if isinstance(inner, str) and inner:
            yield from parts_of(bind(kind, *step(inner)))


def observer_for(methods: Sequence[Method], target: Target) -> Observer:
    """One observer of all that the methods look at; of nothing but the answer where they ask for no more."""
    parts = [part for method in methods for part in parts_of(method.stage)]
    looking = [part for part in parts if "layers" in part.params and part.entry.kind != "criterion"]
    asked = dict.fromkeys(str(part.params["layers"]) for part in looking)
    if not asked or "activation" not in target.gives:
        return Observer.of([target], "none")
    every = {layer.label: layer for text in asked for layer in layers_of(target, text).each}
    ends = any(part().ends for part in parts if part.entry.kind == "criterion")
    return Observer((target,), (Layers(", ".join(asked), tuple(every.values())),), ends)
