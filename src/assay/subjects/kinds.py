"""What sort of layer a module is, and where it has its channels."""

from torch import Tensor, nn

_CONV = (nn.modules.conv._ConvNd,)
_NORM = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
_POOL = tuple(getattr(nn, name) for name in dir(nn) if "Pool" in name and name[-2:] in ("1d", "2d", "3d"))
_ACTIVATION = tuple(getattr(nn, name) for name in nn.modules.activation.__all__ if name not in ("MultiheadAttention",))
_FIRST = (*_CONV, *_POOL, nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LocalResponseNorm)  # (N, C, ...) by contract
_SILENT = (nn.Flatten, nn.Unflatten, nn.Identity, nn.modules.dropout._DropoutNd)  # they hand on what they get


def kind_of(module: nn.Module) -> str:
    """What sort of layer a module is; '' where it hands on what it gets."""
    for kind, types in (("conv", _CONV), ("dense", (nn.Linear, nn.Bilinear)), ("pool", _POOL), ("norm", _NORM)):
        if isinstance(module, types):
            return kind
    if isinstance(module, _ACTIVATION):
        return "activation"
    weighted = any(True for _ in module.parameters(recurse=False))
    return "" if isinstance(module, _SILENT) or not weighted else "other"


def channels_last(module: nn.Module) -> bool | None:
    """Whether a module puts channels last, where it always or never does."""
    if isinstance(module, nn.Linear | nn.Bilinear):
        return True
    return False if isinstance(module, _FIRST) else None


def norms_last_axis(module: nn.Module) -> bool:
    """A norm over the last axis alone; one with a forward of its own may move axes, as LayerNorm2d does."""
    plain = type(module).forward in (nn.LayerNorm.forward, nn.RMSNorm.forward)
    return plain and isinstance(module, nn.LayerNorm | nn.RMSNorm) and len(module.normalized_shape) == 1


def mean_incoming(module: nn.Module) -> Tensor | None:
    """The mean weight that comes into each neuron of a convolution or dense layer."""
    weight = getattr(module, "weight", None)
    if kind_of(module) not in ("conv", "dense") or not isinstance(weight, Tensor) or weight.dim() < 2:
        return None
    if getattr(module, "transposed", False):
        weight = weight.transpose(0, 1)
    return weight.detach().flatten(1).mean(1).float().cpu()
