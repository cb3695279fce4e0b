"""A net with other weights for a while: how a running average of them is judged."""

from torch import Tensor, nn


class Swapped:
    """The net with its averaged weights for as long as the block lasts, where there are any."""

    def __init__(self, net: nn.Module, weights: dict[str, Tensor]) -> None:
        self.net, self.weights = net, weights

    def __enter__(self) -> None:
        if self.weights:
            self.own = {name: tensor.detach().clone() for name, tensor in self.net.state_dict().items()}
            self.net.load_state_dict(self.weights)

    def __exit__(self, *error: object) -> None:
        if self.weights:
            self.net.load_state_dict(self.own)
