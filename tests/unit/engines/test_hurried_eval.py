"""An evaluation in bfloat16: what fools the model only in a hurry is made once more, and counted."""

from pathlib import Path

import torch
from torch import Tensor, nn

from assay.core.cases import Cases, InputSpec
from assay.core.chunks import Chunks
from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.engines.cascade import Block, Column, _maker, run_suite
from assay.subjects.hurried import Hurried
from assay.subjects.sources.module import ModuleTarget

SPEC = InputSpec((1,), (0.0, 1.0), ("high", "low"))


class Threshold(nn.Module):
    """High above a half; in bfloat16 nobody can tell 0.5 from 0.5005."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(1, 2)
        with torch.no_grad():
            self.line.weight.copy_(torch.tensor([[1.0], [-1.0]]))
            self.line.bias.copy_(torch.tensor([-0.5005, 0.5005]))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.line(x)
        return out


ATTACK = """
import torch

def creep(target, x, y, *, rng, eps: float):
    "Up by small steps until the target answers otherwise."
    for step in range(1, 11):
        made = (x + eps * step / 10).clamp(0, 1)
        with torch.no_grad():
            if bool((target(made).argmax(1) != y).all()):
                return made
    return made
"""


def test_what_fools_only_in_a_hurry_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "creep.py").write_text(ATTACK)
    target = ModuleTarget(Threshold(), SPEC)
    target.answers = 2
    fast = Hurried(target, amp=True, compiled=False, rows=4)
    cases = Cases.of(torch.tensor([[0.495]]), torch.tensor([1]))
    attack = bind("attack", f"{tmp_path / 'creep.py'}:creep", {"eps": 0.01})
    with torch.no_grad():
        assert fast(torch.tensor([[0.5]])).argmax(1).tolist() != target(torch.tensor([[0.5]])).argmax(1).tolist()
    outcome = {}
    for name, maker in (("calm", target), ("fast", fast)):
        block = Block(cases.y, torch.tensor([True]))
        column = Column(maker, target, {"creep": attack})
        (made,) = run_suite(column, cases, torch.tensor([True]), Stream(0), Chunks(4), block, name, each=False)
        outcome[name] = made.x, block.broken[f"{name}/creep"], block.effort[f"{name}/creep"].forward
    assert outcome["calm"][1].tolist() == outcome["fast"][1].tolist() == [True]
    assert torch.equal(outcome["calm"][0], outcome["fast"][0])
    calm, hurried = outcome["calm"][2], outcome["fast"][2]
    assert calm is not None
    assert hurried is not None
    assert hurried > calm, "both attempts are counted"


def test_attacks_by_gradients_are_told_whole_numbers() -> None:
    """Between its gradients such an attack asks which of its points fool, and forgets those that seem not to."""
    target = ModuleTarget(Threshold(), SPEC)
    fast = Hurried(target, amp=True, compiled=False, rows=4)
    seen = {}
    for name in ("pgd", "square"):
        maker = _maker(fast, bind("attack", name, {"eps": 0.1}))
        with torch.no_grad():
            seen[name] = maker(torch.tensor([[0.5]])).tolist()
    with torch.no_grad():
        assert seen["pgd"] == target(torch.tensor([[0.5]])).tolist() != seen["square"]
