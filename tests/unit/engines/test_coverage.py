"""Coverage of a test set: one pass, all criteria, the layers beside every number."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.cli import run
from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.registry import bind
from assay.core.specs import step
from assay.stages.coverage import Criterion
from assay.stages.coverage.profile import profile_of
from assay.subjects.bench import Data
from assay.subjects.observer import Observer

ALL = "nc,kmnc(k=10),nbc,snac,tknc(k=1),bknc(k=1),tknp(k=1),nlc,cc"


def by_hand(model: str, text: str, data: str = "digits/test[:70]") -> float:
    given = assay.load_data(data)
    target = assay.load_target(model, data=given, device="cpu")
    criterion: Criterion = bind("criterion", *step(text))()
    observer = Observer.of([target], "auto", ends=criterion.ends)
    training = assay.load_data("digits/train")
    profile = profile_of(observer, training, Chunks()) if criterion.profiled else None
    coverage = criterion.begin(observer, profile)
    for i in range(len(given)):
        coverage.add(observer.all(given.cases.x[i : i + 1], Chunks()))
    return coverage.covered()


def test_numbers_are_those_of_the_criteria_by_hand(digits_model: str) -> None:
    found = assay.coverage(digits_model, "digits/test[:70]", by=ALL, batch=32, device="cpu")
    assert list(found.criteria)[:2] == ["nc(scaled=true, threshold=0.5)", "kmnc(k=10)"]
    for text, reached in found.criteria.items():
        # Batches of other sizes round otherwise: a value on the edge of a section may fall on its other side.
        assert reached.covered == pytest.approx(by_hand(digits_model, text), rel=0.01), text
        assert reached.covered > 0 or text.startswith(("nbc", "snac"))
    assert found.layers == "auto: 268 neurons in 8 layers"
    assert found["nc"].total == 268
    assert found["tknp"].share is None


def test_the_net_is_asked_once_for_all_criteria(digits_model: str) -> None:
    given = assay.load_data("digits/test[:70]")
    target = assay.load_target(digits_model, data=given, device="cpu")
    rows = []
    target.module.register_forward_hook(lambda _m, x, _out: rows.append(len(x[0])))  # type: ignore[attr-defined]
    assay.coverage(target, given, by="nc,tknc,bknc,tknp", batch=32)
    assert sum(rows) == 70 + 2, "every case once, and two more to find the layers"
    rows.clear()
    assay.coverage(target, given, by=ALL, batch=32, training="digits/train[:200]")
    assert sum(rows) == 70 + 2 + 16 + 200
    rows.clear()
    assay.coverage(target, given, by=ALL, batch=32, training="digits/train[:200]")
    assert sum(rows) == 70 + 2 + 16, "the range of neurons is kept, and 16 inputs tell that it is of this net"


def test_growth_ends_at_the_whole(digits_model: str) -> None:
    found = assay.coverage(digits_model, "digits/test[:70]", by="nc,kmnc,tknp", batch=20, device="cpu")
    for reached in found.criteria.values():
        assert [n for n, _ in reached.growth] == [1, 2, 4, 8, 16, 32, 64, 70]
        covered = [c for _, c in reached.growth]
        assert covered == sorted(covered)
        assert covered[-1] == reached.covered
        assert covered[0] > 0
    few = assay.coverage(digits_model, "digits/test[:8]", by="nc,kmnc,tknp", device="cpu")
    assert [n for n, _ in few["nc"].growth] == [1, 2, 4, 8]
    assert few["kmnc"].covered == pytest.approx(dict(found["kmnc"].growth)[8], rel=0.01)


def test_layers_sum_up_to_the_whole(digits_model: str) -> None:
    found = assay.coverage(digits_model, "digits/test[:30]", by="kmnc,tknc,tknp", device="cpu")
    for name in ("kmnc", "tknc"):
        rows = found[name].layers
        assert [label for label, _, _ in rows][:2] == ["act1", "pool1"]
        assert sum(c for _, c, _ in rows) == found[name].covered
        assert sum(t for _, _, t in rows) == found[name].total
    assert found["tknp"].layers == ()


def test_layers_are_those_asked_for(digits_model: str) -> None:
    found = assay.coverage(digits_model, "digits/test[:30]", by="nc", layers="conv*,logits", device="cpu")
    assert found["nc"].total == 6 + 16 + 10
    assert found.layers == "conv*,logits: 32 neurons in 3 layers"
    assert [layer["name"] for layer in found.protocol["layers"][0]] == ["conv1", "conv2", "logits"]


def test_siblings_are_neurons_too(digits_model: str) -> None:
    torch.manual_seed(1)
    other = bind("model", "lenet4", {}, {"shape": (1, 8, 8), "classes": 10})()
    found = assay.coverage(digits_model, "digits/test[:30]", by="kmnc,nc", siblings=[other], device="cpu")
    assert found["nc"].total == 268 + 148
    labels = [label for label, _, _ in found["nc"].layers]
    assert labels[0] == "1:act1"
    assert labels[-1] == "2:softmax"
    assert found.layers == "auto: 268 neurons in 8 layers; auto: 148 neurons in 7 layers"


def test_the_training_data_are_another_set_where_it_is_named(digits_model: str) -> None:
    own = assay.coverage(digits_model, "digits/test[:30]", by="nbc", device="cpu")
    assert own.protocol["training"] == "digits/train"
    few = assay.coverage(digits_model, "digits/test[:30]", by="nbc", training="digits[:20]", device="cpu")
    assert few.protocol["training"] == "digits/train[:20]"
    assert few["nbc"].covered > own["nbc"].covered, "a narrower range is left more often"


def test_without_training_data_ranges_are_refused_and_the_rest_is_not(digits_model: str) -> None:
    x = torch.rand(20, 1, 8, 8).numpy()
    given = assay.load_data((x, None))
    with pytest.raises(UsageError, match="give --training"):
        assay.coverage(digits_model, given, by="nc,kmnc", device="cpu")
    found = assay.coverage(digits_model, given, by="nc", device="cpu")
    assert found["nc"].covered > 0, "labels are not needed"
    assert found.protocol["training"] is None


@pytest.mark.parametrize("by", ["", "nothing", "nc(level=1)", "kmnc(k=0)"])
def test_unknown_criteria_are_refused(digits_model: str, by: str) -> None:
    with pytest.raises(UsageError):
        assay.coverage(digits_model, "digits/test[:5]", by=by, device="cpu")


def test_a_criterion_of_ones_own(digits_model: str, tmp_path: Any) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "from assay.stages.coverage.bitmap import NONE, over_neurons\n"
        "from assay.stages.coverage.rule import Rule\n\n\n"
        "def negative(*, below: float = 0.0):\n"
        "    def begin(observer, profile):\n"
        "        places = torch.arange(observer.neurons, device=observer.targets[0].device)\n"
        "        return over_neurons(observer, lambda seen: torch.where(seen.neurons < below, places, NONE))\n\n"
        "    return Rule(begin)\n"
    )
    found = assay.coverage(digits_model, "digits/test[:30]", by=f"nc,{file}:negative(below=-0.5)", device="cpu")
    own = list(found.criteria.values())[1]
    assert own.total == 268
    assert 0 < own.covered <= 10, "logits alone are ever negative"


def test_nan_counts_nowhere() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a, self.out = nn.Linear(64, 8), nn.Linear(8, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x.flatten(1))
            out: Tensor = self.out(torch.where(x.flatten(1)[:, :1] > 0.5, torch.nan, h))
            return out

    x = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    x[:, 0, 0, 0] = torch.arange(40) / 40
    data = assay.load_data("digits/test")
    both, half = (
        assay.coverage(
            Broken(),
            Data("x", Cases.of(cut, torch.zeros(len(cut), dtype=torch.int64)), data.spec),
            by="nc,kmnc,nbc,tknc,bknc,nlc,cc(layers=logits)",
            layers="logits",
            training="digits/train[:100]",
            device="cpu",
        )
        for cut in (x, x[:21])
    )
    for text, reached in both.criteria.items():
        assert reached.covered == pytest.approx(half.criteria[text].covered), text


def test_the_command_prints_layers_with_every_number(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["coverage", digits_model, "--data", "digits/test[:30]", "--by", "nc,tknp", "--device", "cpu"]
    assert run([*arguments, "--per-layer"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("auto: 268 neurons in 8 layers") == 2
    assert "no upper end" in shown
    assert "softmax" in shown
    assert run([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = assay.coverage(digits_model, "digits/test[:30]", by="nc,tknp", device="cpu")
    assert told == json.loads(json.dumps(found.to_json()))
    assert told["layers"] == "auto: 268 neurons in 8 layers"
    assert told["criteria"]["tknp(k=2, most=1048576)"]["total"] is None


def test_the_command_says_what_is_wrong(digits_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["coverage", digits_model, "--data", "digits/test[:5]", "--by", "kmcn"]) == 4
    assert "did you mean 'kmnc'" in capsys.readouterr().err
    assert run(["coverage", digits_model, "--data", "digits/test[:5]", "--layers", "conv9"]) == 4
    assert "conv9" in capsys.readouterr().err


def test_a_net_that_ends_in_a_softmax_is_told(caplog: pytest.LogCaptureFixture) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Softmax(1))
    assay.coverage(net, "digits/test[:20]", by="nc")
    assert "answers with probabilities" in caplog.text
