"""LBT with other mutation rates, thresholds of agreement and nets, each value with stand-ins of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from papers.lbt_methods import DEEP, METHODS
from papers.lbt_orders import Ground, Orders, setting
from papers.lbt_subject import Params

SWEEPS: Mapping[str, tuple[Any, ...]] = {
    "rate": (0.005, 0.01, 0.05, 0.1),
    "tau": (0.8, 0.9, 0.95, 0.99),
    "net": ("lenet1", "lenet5", "resnet20", "vgg16"),
}
_BOTH = ("lbt", "control")  # what changes the stand-in changes the control too


class Sweep:
    """Rows of one subject's pool."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders

    def values(self, what: str, asked: Sequence[str] = ()) -> list[tuple[Any, str]]:
        """The values with the orders to be made with each; only those ``asked`` for, where some are."""
        names = ("lbt",) if what == "rate" else _BOTH
        return [(value, name) for value in SWEEPS[what] if not asked or str(value) in asked for name in names]

    def protocol(self, attack: str, what: str, value: Any, name: str, seed: int) -> Params:
        subject = self.orders.subject
        return {
            "experiment": "sweep",
            "data": subject.data,
            "mut": subject.mut,
            "attack": attack,
            "what": what,
            "value": value,
            "method": name,
            "seed": seed,
            "how": self._how(what, value, name),
            **setting(subject, attack),
        }

    def numbers(self, ground: Ground, what: str, value: Any, name: str, seed: int) -> Params:
        made = self.orders.black(name, ground.pool, seed, self._how(what, value, name), f"{what} {value}")
        return ground.numbers(made)

    def _how(self, what: str, value: Any, name: str) -> Params:
        # All with the operators that deep nets had when the first rows were made (see DEEP).
        more = {"operators": DEEP} if what == "net" and name == "lbt" else {}
        return self.orders.how(METHODS[name]) | {what: value} | more
