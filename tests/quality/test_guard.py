"""Does the guard find that a net has learned to fool its searches, and does that help?"""

import pytest

from assay.core.randomness import Stream
from assay.core.registry import bind
from assay.engines.evaluate import evaluate
from assay.stages.trainers.watch import State, Unwatched
from assay.subjects.bench import with_validation
from assay.subjects.data.load import load_splits
from assay.subjects.sources.load import load_target
from assay.subjects.sources.module import ModuleTarget

EPS = 0.2
POOR = "pgd(steps=1, step=1.5, early_stop=false)"  # one large step, which nets learn to fool


class Kept(Unwatched):
    def epoch(self, state: State, net: object) -> None:
        self.log = list(state.log)


def test_a_guard_makes_a_net_that_fools_one_step_withstand_many(digits_model: str) -> None:
    digits = with_validation(load_splits("digits"))
    start = load_target(digits_model, data=digits.part("test"))
    assert isinstance(start, ModuleTarget)
    found, logs = {}, {}
    for guard in (0.0, 0.03):
        given = {"epochs": 18, "batch": 64, "lr": 5e-3, "eps": EPS, "warm": 0.3, "guard": guard, "attack": POOR}
        kept = Kept()
        net = bind("trainer", "adversarial", given)(start.module, digits, None, rng=Stream(0), watch=kept)
        found[guard] = evaluate(net, digits.part("test"), suite="apgd_ce, apgd_t", eps=EPS).accuracy("worst")
        logs[guard] = kept.log
    assert logs[0.0][-1]["own"] > logs[0.0][-1]["score"] + 0.1, "it fools the step"
    assert logs[0.03][-1]["own"] < logs[0.03][-1]["score"] + 0.1
    assert found[0.03] > found[0.0] + 0.04


@pytest.mark.parametrize("trainer", ["trades", "mart"])
def test_other_trainers_have_a_guard_too(trainer: str, digits_model: str) -> None:
    digits = with_validation(load_splits("digits"))
    start = load_target(digits_model, data=digits.part("test"))
    assert isinstance(start, ModuleTarget)
    asked = {}
    for guard in (0.0, 1e-9):  # any difference counts, as the net gets no better
        given = {"epochs": 4, "batch": 200, "lr": 1e-9, "eps": EPS, "guard": guard, "attack": POOR}
        kept = Kept()
        bind("trainer", trainer, given)(start.module, digits, None, rng=Stream(0), watch=kept)
        asked[guard] = [row["passes"] for row in kept.log]
    assert len(set(asked[0.0])) == 1
    assert asked[1e-9][:3] == asked[0.0][:3]
    assert asked[1e-9][3] > asked[0.0][3], "two epochs after the first were no better"
