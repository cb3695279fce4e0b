"""Answers of a net whose first layers are as they were: those layers are run once and what they gave is kept.

Half of a LeNet-5's time is its first convolution and pool, and most of its mutants leave these alone.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor, nn

from assay.core.chunks import Chunks
from assay.subjects.sources.module import Normalised, moments_of

KEPT = 256 << 20  # bytes of what layers gave that are held for one block of inputs


def chain_of(net: nn.Module) -> list[nn.Module]:
    """The modules that a net runs one after the other; the net alone where it is no plain chain."""
    if net._forward_hooks or net._forward_pre_hooks:
        return [net]
    if isinstance(net, Normalised):
        return [Normalised(nn.Identity(), *moments_of(net)).to(net.mean.device), *chain_of(net.net)]
    if type(net).forward is nn.Sequential.forward:
        return list(itertools.chain.from_iterable(chain_of(child) for child in net.children()))
    return [net]


class Shortcuts:
    """Passes of a net over the inputs ``x``, each from the first module on that a change of weights can touch.

    ``changed`` are the changes to come: the names of the parameters that each of them touches. Wanted is a net in
    evaluation mode without gradients; ``own`` are its answers as it is now.
    """

    def __init__(self, net: nn.Module, x: Tensor, changed: Sequence[Collection[str]], chunks: Chunks) -> None:
        self.chunks = chunks
        self.links, sizes = _links(net, x[:2])
        holders = _holders(net, self.links)
        self.first = [min((holders.get(name, 0) for name in names), default=0) for names in changed]
        cuts = _worth(Counter(self.first), sizes, len(x))
        self.own, *kept = chunks.map_all(self._with(cuts), x)
        self.inputs = {0: x} | dict(zip(cuts, kept, strict=True))

    def _with(self, cuts: Sequence[int]) -> Callable[[Tensor], tuple[Tensor, ...]]:
        """A pass that gives, beside the answers, what comes in at the cuts."""

        def run(h: Tensor) -> tuple[Tensor, ...]:
            kept = []
            for place, link in enumerate(self.links):
                if place in cuts:
                    kept.append(h)
                h = link(h)
            return (h, *kept)

        return run

    def answers(self, i: int) -> Tensor:
        """The answers with change ``i``, which is in the net at the moment."""
        start = max(cut for cut in self.inputs if cut <= self.first[i])
        return self.chunks.map(lambda h: _run(self.links[start:], h), self.inputs[start])

    def keep(self, rows: Tensor) -> None:
        """Only these inputs from now on."""
        self.inputs = {cut: given[rows] for cut, given in self.inputs.items()}


def _run(links: Sequence[nn.Module], h: Tensor) -> Tensor:
    for link in links:
        h = link(h)
    return h


def _links(net: nn.Module, sample: Tensor) -> tuple[list[nn.Module], list[int]]:
    """The chain of a net and the bytes that come into each of its modules a row; 0 where a pass must not begin there.

    The net alone where the chain does not answer the sample to the bit as the net does. A pass must not begin where
    modules write into what they are given (an activation in place), for they would write into what is kept.
    """
    links = chain_of(net)
    if len(links) == 1 or not len(sample) or not torch.equal(_run(links, sample.clone()), net(sample.clone())):
        return [net], [0]
    sizes, h = [], sample
    for place, link in enumerate(links):
        given = h.clone()
        _run(links[place:], given)
        sizes.append(h[:1].nbytes if torch.equal(given, h) else 0)
        h = link(h.clone())
    return links, sizes


def _holders(net: nn.Module, links: Sequence[nn.Module]) -> dict[str, int]:
    """For each parameter of the net, the first module of the chain that has it."""
    held: dict[int, int] = {}
    for place, link in enumerate(links):
        for weight in link.parameters():
            held.setdefault(id(weight), place)
    return {name: held[id(weight)] for name, weight in net.named_parameters() if id(weight) in held}


def _worth(uses: Counter[int], sizes: Sequence[int], n: int) -> list[int]:
    """Where passes begin often, for as long as what comes in there can be held."""
    found, left = [], KEPT
    for cut, _ in uses.most_common():
        if cut and sizes[cut] and sizes[cut] * n <= left:
            found.append(cut)
            left -= sizes[cut] * n
    return sorted(found)
