"""The same net with its batch normalisations folded into the layers before them: fewer passes over memory."""

import copy
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, fx, nn

from assay.core.modes import eval_mode
from assay.core.precision import full_precision
from assay.subjects.sources.module import ModuleTarget, Normalised, before, behind
from assay.subjects.target import Target

log = logging.getLogger("assay")

CLOSE = 1e-4  # of the largest score: what rounding may change
SHOWN = 64  # inputs that a folded net is compared on
CLIMBED = 8  # of them by their slopes, too
MOSTLY = 0.75  # of these
FOLDS = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d, nn.Linear: nn.BatchNorm1d}


class _Pair(NamedTuple):
    layer: Any  # modules, whose weights are no more than attributes to the type checker
    norm: Any
    into: Any


class Folding:
    """A copy of a net without its batch normalisations, as the net is in evaluation mode.

    The copy has the net's weights as they were when it was last told to ``follow``.
    """

    def __init__(self, module: nn.Module) -> None:
        """Raises whatever the net raises where it cannot be copied or traced, ``LookupError`` where nothing folds."""
        with eval_mode(module):
            self.module = copy.deepcopy(module)
        # The tracer cannot read a normalisation of inputs, and there is nothing to fold in it.
        net = fx.symbolic_trace(behind(self.module))
        names = _pairs(net)
        if not names:
            raise LookupError("no batch normalisation stands alone behind its layer")
        theirs = behind(module)
        self.pairs = [_pair(net, theirs, layer, norm) for layer, norm in names]
        net.delete_all_unused_submodules()
        if isinstance(self.module, Normalised):
            self.module.net = net
        else:
            self.module = net
        folded = {before(self.module) + layer for layer, _ in names}
        theirs_by_name, kept = dict(_tensors(module)), []
        for name, tensor in _tensors(self.module):
            if name.rpartition(".")[0] not in folded:
                kept.append((tensor, theirs_by_name[name]))  # a tensor without a name there cannot be followed
        self.same = kept
        for weight in self.module.parameters():
            weight.requires_grad_(False)
        self.follow()

    @torch.no_grad()
    def follow(self) -> None:
        """Take the net's weights as they are now."""
        if self.same:
            torch._foreach_copy_([mine for mine, _ in self.same], [theirs for _, theirs in self.same])
        for layer, norm, into in self.pairs:
            scale = torch.rsqrt(norm.running_var + norm.eps)
            scale = scale if norm.weight is None else scale * norm.weight
            shift = -norm.running_mean if layer.bias is None else layer.bias - norm.running_mean
            into.weight.copy_(layer.weight * scale.view(-1, *([1] * (layer.weight.dim() - 1))))
            into.bias.copy_(shift * scale if norm.bias is None else torch.addcmul(norm.bias, shift, scale))


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All that a net computes with, one that is shared under each of its names: copies may order them otherwise."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _pairs(net: fx.GraphModule) -> list[tuple[str, str]]:
    """Names of layers and of the normalisations that alone read them, each used once; the latter leave the graph."""
    modules, uses = dict(net.named_modules()), [node.target for node in net.graph.nodes if node.op == "call_module"]
    found = []
    for node in list(net.graph.nodes):
        fed = node.args[0] if node.op == "call_module" and len(node.args) == 1 and not node.kwargs else None
        if not isinstance(fed, fx.Node) or fed.op != "call_module" or len(fed.users) > 1:
            continue
        layer, norm = modules[str(fed.target)], modules[str(node.target)]
        once = uses.count(fed.target) == uses.count(node.target) == 1
        if once and type(norm) is FOLDS.get(type(layer)) and norm.track_running_stats:
            found.append((str(fed.target), str(node.target)))
            node.replace_all_uses_with(fed)
            net.graph.erase_node(node)
    net.recompile()
    return found


def _pair(net: fx.GraphModule, theirs: nn.Module, layer: str, norm: str) -> _Pair:
    pair = _Pair(theirs.get_submodule(layer), theirs.get_submodule(norm), net.get_submodule(layer))
    if pair.into.bias is None:
        pair.into.bias = nn.Parameter(torch.zeros_like(pair.norm.running_mean))
    return pair


def normalised_by_batch(module: nn.Module) -> bool:
    """Whether there is a batch normalisation in the net."""
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())


def folding_of(module: nn.Module) -> Folding | None:
    """The folding of a net, None where there is nothing to fold or the net defeats the tracer."""
    if not normalised_by_batch(module):
        return None
    try:
        return Folding(module)
    except Exception as error:  # noqa: BLE001  any net may defeat the tracer, and then nothing is folded
        log.debug("batch normalisation is not folded: %s", error)
        return None


@overload
def folded(target: ModuleTarget, sample: Tensor) -> ModuleTarget: ...
@overload
def folded(target: Target, sample: Tensor) -> Target: ...


def folded(target: Target, sample: Tensor) -> Target:
    """A faster target that answers the sample as this one does, or this one itself where there is none.

    Meant for searching: what is found is judged again by the target itself.
    """
    if not isinstance(target, ModuleTarget):
        return target
    made = folding_of(target.module)
    if made is None:
        return target
    faster = ModuleTarget(made.module, target.spec, target.device)
    faster.answers = target.answers
    return faster if alike(target, faster, sample) else target


def alike(target: ModuleTarget, faster: ModuleTarget, sample: Tensor) -> bool:
    """Whether both answer the first inputs of the sample alike, up to rounding, and climb alike from a few of them."""
    x = sample[:SHOWN].to(target.device)
    try:
        with full_precision(), target.ready(), faster.ready():
            with torch.no_grad():
                was, now = target(x), faster(x)
            if now.shape != was.shape or bool(((now - was).abs() > CLOSE * was.abs().amax()).any()):
                return False
            return _climb_alike(*(_slope(net, x[:CLIMBED]) for net in (target, faster)))
    except Exception as error:  # noqa: BLE001  a net may say no to what the tracer made of it
        log.debug("batch normalisation is not folded: %s", error)
        return False


def _slope(target: ModuleTarget, x: Tensor) -> Tensor | None:
    """The gradient of the best score, None where a net has no way back to its inputs."""
    with torch.enable_grad():
        at = x.detach().clone().requires_grad_()
        best = target(at).amax(1).sum()
        return torch.autograd.grad(best, at, allow_unused=True)[0] if best.requires_grad else None


def _climb_alike(was: Tensor | None, now: Tensor | None) -> bool:
    """Whether most slopes are alike; one may jump where a unit sits at its kink."""
    if was is None or now is None:
        return was is now
    apart, length = (now - was).flatten(1).norm(dim=1), was.flatten(1).norm(dim=1)
    return bool((apart <= 0.01 * length + torch.finfo(was.dtype).tiny).float().mean() >= MOSTLY)
