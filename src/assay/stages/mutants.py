"""A family of mutants of one net, each kept as what it was drawn from and the few weights it changes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError, UsageError
from assay.core.randomness import Stream
from assay.core.specs import did_you_mean
from assay.stages.mutation_operators import OPERATORS, Difference, Weighted, weighted

MOST = 5000  # the test's decisions for every count of mutants and changes are kept in a table
PATIENCE = 20  # rejections in a row after which an operator's rate is halved
KEPT = 256 << 20  # bytes of differences held ready; what is beyond is drawn anew when it is wanted


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutant: with the stream of its family this is all of it. ``number`` counts the tries of its operator."""

    operator: str
    rate: float
    number: int


@dataclass(slots=True)
class Mutants:
    """Mutants of one net, in the order in which they are asked. The net must not be trained while they are in use.

    ``rejected`` says how many tries of each operator were not valid, ``rates`` at which rate each ended.
    """

    net: nn.Module
    rng: Stream
    each: tuple[Mutant, ...] = ()
    rejected: dict[str, int] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    _layers: tuple[Weighted, ...] = ()
    _touched: dict[Mutant, frozenset[str]] = field(default_factory=dict)
    _kept: dict[Mutant, Difference] = field(default_factory=dict)
    _bytes: int = 0
    _inside: bool = False

    def __len__(self) -> int:
        return len(self.each)

    def difference(self, i: int) -> Difference:
        """What mutant i changes: for parameters of the net by name, flat indices (int64) and the values there."""
        mutant = self.each[i]
        return self._kept[mutant] if mutant in self._kept else self._drawn(mutant)

    def touched(self, i: int) -> frozenset[str]:
        """The names of the parameters that mutant i changes."""
        return self._touched[self.each[i]]

    @contextmanager
    def applied(self, i: int) -> Iterator[nn.Module]:
        """The net as mutant i for as long as the block lasts; then it is as it was, bit for bit, also on an error."""
        with self._with(self.difference(i)) as net:
            yield net

    def _drawn(self, mutant: Mutant) -> Difference:
        rng = self.rng.at("mutant", mutant.operator, mutant.number).generator()
        drawn = OPERATORS[mutant.operator].draw(self._layers, mutant.rate, rng)
        device = next(self.net.parameters()).device
        return {name: (index.to(device), values.to(device)) for name, (index, values) in drawn.items()}

    def _keep(self, mutant: Mutant, difference: Difference) -> None:
        self._touched[mutant] = frozenset(difference)
        size = sum(index.nbytes + values.nbytes for index, values in difference.values())
        if self._bytes + size <= KEPT:
            self._kept[mutant] = difference
            self._bytes += size

    @contextmanager
    def _with(self, difference: Difference) -> Iterator[nn.Module]:
        if self._inside:
            raise AssayError("the net is another mutant already; leave that block first")
        self._inside = True
        undo: list[tuple[Tensor, tuple[Tensor, ...], Tensor]] = []
        try:
            for name, (index, values) in difference.items():
                weight, where = _place(self.net.get_parameter(name).data, index)
                undo.append((weight, where, weight[where]))
                weight[where] = values.to(weight.device)
            yield self.net
        finally:
            for weight, where, values in reversed(undo):  # a bias may be that of two layers
                weight[where] = values
            self._inside = False


def _place(weight: Tensor, index: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A tensor that shares memory with the weight and an index into it; flat unless the weight lies otherwise."""
    index = index.to(weight.device)
    if weight.is_contiguous():
        return weight.view(-1), (index,)
    return weight, torch.unravel_index(index, weight.shape)


def made(
    net: nn.Module,
    valid: Callable[[nn.Module], bool],
    *,
    count: int = 300,
    operators: Sequence[str] = ("gf", "nai", "ns"),
    rate: float = 0.05,
    rng: Stream,
) -> Mutants:
    """Mutants that are ``valid``, as many by each operator (the first have one more where it does not come out even).

    ``valid`` is given the net as the mutant, in place. After 20 rejections in a row an operator's rate is halved.
    """
    check(count, operators, rate)
    can_make(net, operators, rate)
    mutants = Mutants(net, rng, _layers=weighted(net))
    found: list[Mutant] = []
    for place, name in enumerate(operators):
        wanted = count // len(operators) + (place < count % len(operators))
        found += _by(mutants, name, wanted, rate, valid)
    order = torch.randperm(len(found), generator=rng.at("order").generator()).tolist()
    mutants.each = tuple(found[i] for i in order)
    return mutants


def can_make(net: nn.Module, operators: Sequence[str], rate: float) -> None:
    """Refuse operators that have nothing to change in this net."""
    layers = weighted(net)
    for name in operators:
        if not OPERATORS[name].size(layers, rate):
            raise UsageError(f"the mutation operator {name} needs {OPERATORS[name].wants}; leave it out for this net")


def _by(mutants: Mutants, operator: str, wanted: int, rate: float, valid: Callable[[nn.Module], bool]) -> list[Mutant]:
    """So many valid mutants by one operator; what it took is noted in the family."""
    size = OPERATORS[operator].size
    found: list[Mutant] = []
    number = in_a_row = 0
    while len(found) < wanted:
        mutant = Mutant(operator, rate, number)
        difference = mutants._drawn(mutant)
        with mutants._with(difference) as net:
            good = valid(net)
        number += 1
        if good:
            found.append(mutant)
            mutants._keep(mutant, difference)
            in_a_row = 0
            continue
        in_a_row += 1
        if in_a_row == PATIENCE:
            if size(mutants._layers, rate / 2) == size(mutants._layers, rate):
                raise UsageError(_given_up(operator, rate, number, len(found), wanted))
            rate, in_a_row = rate / 2, 0
    mutants.rejected[operator] = number - len(found)
    mutants.rates[operator] = rate
    return found


def _given_up(operator: str, rate: float, tried: int, found: int, wanted: int) -> str:
    return (
        f"{tried} mutants by {operator} were tried and {found} of the {wanted} wanted are valid, with the rate down to "
        f"{rate:g}: a valid one answers nearly as well as the net and yet differs from it; leave {operator} out or "
        "give another rate"
    )


def check(count: int, operators: Sequence[str], rate: float) -> None:
    """Refuse a family that cannot be made of any net."""
    if not 1 <= count <= MOST:
        raise UsageError(f"the number of mutants must be from 1 to {MOST}, got {count}")
    if not operators or len(set(operators)) != len(operators):
        raise UsageError(f"name each mutation operator once, got {', '.join(operators) or 'none'}")
    for name in operators:
        if name not in OPERATORS:
            raise UsageError(f"no mutation operator is called {name!r}; {did_you_mean(name, OPERATORS)}")
    if not 0 < rate <= 1:
        raise UsageError(f"the mutation rate is a share above 0 and up to 1, got {rate}")
