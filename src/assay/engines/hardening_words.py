"""What is said of a hardening in words."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.engines.hardened import Round, Tested

NOISE = "noise: the original with random noise on the weights that training changed, as much in each tensor of them"

OUTDONE = "after: what was trained; by the requirement the original is no worse, and is the result"


def no_control(rounds: Sequence["Round"], best: int, *, met: bool, alone: bool = False) -> str:
    """Why there is no control beside the best model, "" where there may be one; ``alone``: the recipe only trains."""
    named = {"original": "the original", "resistant": "the resistant model"}.get(rounds[best].made)
    if named is None:
        return ""
    if rounds[best + 1 :]:
        return f"no round was better than {named}; no control was trained"
    if met:
        return f"{named} met the requirement before any {'training' if alone else 'fuzzing; no case was looked for'}"
    return f"no round came after {named}; no control was trained"


def noise_line(test: "Tested") -> str:
    """What the static numbers of the best model are worth beside those of noise, "" where they are surely above."""
    if test.over_noise is None:
        return ""
    if test.noise_does:
        return "static: random noise of the same size on the same weights does as well: this is no sign of robustness"
    difference, low, high = (round(100 * v, 1) + 0.0 for v in test.over_noise)  # no -0.0
    if test.over_noise[1] > 0:
        return ""
    return (
        "static: after is not told apart from random noise of the same size on the same weights "
        f"({difference:+.1f} points, 95 % interval {low:.1f} to {high:.1f})"
    )


def looked(times: int) -> str:
    """How often the test part was looked at."""
    return f"test part looked at {often(times)}"


def often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def title_of(protocol: Mapping[str, Any]) -> str:
    """Data, number of inputs, ball and seed: what the numbers of a table have in common."""
    ball = "" if protocol["eps"] is None else f", {protocol['norm']} eps={protocol['eps_text']}"
    return f"{protocol['data']}, n={protocol['n']}{ball}, seed {protocol['seed']}"
