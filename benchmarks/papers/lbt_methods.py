"""The orders that are compared: what each of them is, and what of the model under test it has to see."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Params = Mapping[str, Any]

# Specification: tau 0.95 on MNIST, 0.90 on Fashion-MNIST.
TAU = {"mnist": 0.95, "fashion-mnist": 0.9, "digits": 0.9}
SMALL: Params = {"mutants": 12, "rounds": 2, "start": 40, "check": 100, "epochs": 8}  # of a trial of the commands

LABELS, PROBABILITIES, INSIDE, NOTHING = "labels", "probabilities", "white box", "nothing"
# Operators for deep nets. NS is left out because, when the first rows were made, it switched two neurons at least in
# every layer, and none of its mutants of ResNet-20 was valid. Now layers take part by lot; rows keep their protocol.
DEEP = "gf, nai"
GROUPS = ("lbt", "random", "rival", "white", "bound")


@dataclass(frozen=True, slots=True)
class Method:
    """A way to order a pool: a selector or score by its text, with the parameters that differ from those of the data.

    ``sees`` is what of the model it looks at; those of one ``group`` are computed together. With ``seeded`` it is drawn
    anew with every seed.
    """

    title: str
    text: str
    sees: str
    group: str
    seeded: bool = False
    how: Params = field(default_factory=dict)


def _lbt(title: str, **how: Any) -> Method:
    return Method(title, "lbt", LABELS, "lbt", seeded=True, how=how)


_CRITERIA = {
    "NC 0.5": "nc(threshold=0.5)",
    "NC 0.75": "nc(threshold=0.75)",
    "KMNC": "kmnc(k=1000)",
    "NBC": "nbc",
    "SNAC": "snac",
    "TKNC": "tknc",
}
_COVERAGE = {
    f"{how}-{title.lower().replace(' ', '-')}": Method(
        f"{how.upper()} of {title}", f"{how}(criterion={written})", INSIDE, "white"
    )
    for title, written in _CRITERIA.items()
    for how in ("ctm", "cam")
}
METHODS: dict[str, Method] = {
    "lbt": _lbt("LBT"),
    "lbt-ms": _lbt("LBT by mutation score", order="ms"),
    "lbt-lcr": _lbt("LBT by label changes", order="lcr"),
    "lbt-half": _lbt("LBT, delta 0.5 kappa", delta=0.5),
    "control": _lbt("stand-in's Gini (control)", order="gini"),
    "random": Method("random", "random", NOTHING, "random", seeded=True),
    "metasel": Method("MetaSel", "metasel", PROBABILITIES, "rival", seeded=True),
    "gini": Method("Gini", "gini", PROBABILITIES, "white"),
    "max_p": Method("largest probability", "max_p", PROBABILITIES, "white"),
    "margin": Method("margin", "margin", PROBABILITIES, "white"),
    "entropy": Method("entropy", "entropy", PROBABILITIES, "white"),
    "lsa": Method("LSA", "lsa", INSIDE, "white"),
    "dsa": Method("DSA", "dsa", INSIDE, "white"),
    **_COVERAGE,
    "nmutant": Method(
        "mutants of the model itself", "lbt", INSIDE, "bound", seeded=True, how={"net": "target", "operators": DEEP}
    ),
}
DRAWS = 20  # random orders of a pool
NO_SEED = 0  # of a method that draws nothing


def of_group(group: str) -> dict[str, Method]:
    """The methods that are computed together."""
    return {name: method for name, method in METHODS.items() if method.group == group}


def params_of(method: Method, data: str, small: bool) -> dict[str, Any]:
    """The parameters of LBT on a data set; others have theirs in their text."""
    if method.text not in ("lbt", "metasel"):
        return {}
    own: dict[str, Any] = {"tau": TAU[data], **(SMALL if small else {})}
    if method.text == "metasel":  # it has no mutants, and epochs of its own
        own = {key: value for key, value in own.items() if key in ("tau", "rounds", "start", "check")}
        own |= {"labelled": 1000} if small else {}
    return own | dict(method.how)
