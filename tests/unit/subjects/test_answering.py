"""Targets that only answer: what an answer may be, and what happens when it is none."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.core.cases import InputSpec
from assay.core.errors import NoAnswer, UsageError
from assay.subjects.sources.answering import Answering
from assay.subjects.sources.asking import asking
from assay.subjects.sources.patience import BadAnswer, Patience, TryAgain, printable

SPEC = InputSpec((2,), (0.0, 1.0), ("cat", "dog", "owl"))
X = torch.rand(2, 2, generator=torch.Generator().manual_seed(0))


def scores(answer: Any, **more: Any) -> Tensor:
    """What a target makes of an answer to two inputs."""
    return Answering(lambda rows: answer, SPEC, name="it", identity="it", **more)(X)


def test_probabilities_become_their_logarithms() -> None:
    p = np.array([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    out = scores(p)
    assert out.dtype == torch.float32
    assert torch.allclose(out.softmax(1).double(), torch.from_numpy(p), atol=1e-7)
    assert torch.allclose(out[0], torch.from_numpy(np.log(p[0])).float())
    assert out[1, 0].item() == pytest.approx(np.log(1e-12))


def test_rounded_probabilities_are_made_to_sum_to_one() -> None:
    out = scores([[0.33, 0.33, 0.33], [0.5, 0.5, 0.01]])
    assert torch.allclose(out.exp().sum(1), torch.ones(2))
    assert torch.allclose(out[0].exp(), torch.full((3,), 1 / 3))


def test_raw_scores_go_through_a_softmax_with_a_notice(notices: pytest.LogCaptureFixture) -> None:
    z = torch.tensor([[3.0, -1.0, 0.5], [200.0, 0.0, 0.0]])
    out = scores(z.numpy())
    assert torch.allclose(out[0], z[0].log_softmax(0))
    assert out.isfinite().all()
    assert "it answers with scores that are no probabilities; the softmax is taken" in notices.text


@pytest.mark.parametrize(
    "labels", [[2, 0], np.array([2.0, 0.0]), np.array([[2], [0]]), ["owl", "cat"], np.array(["owl", "cat"], object)]
)
def test_labels_are_numbers_or_names(labels: Any) -> None:
    assert scores(labels).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_what_it_gives_is_known_from_the_first_answer() -> None:
    target = Answering(lambda rows: np.zeros(len(rows), int), SPEC, name="it", identity="it")
    target(X)
    assert target.gives == {"label"}
    told = Answering(lambda rows: np.full((len(rows), 3), 1 / 3), SPEC, name="it", identity="it")
    told(X)
    assert told.gives == {"label", "prob"}


def test_an_answer_of_another_kind_is_refused() -> None:
    answers = iter([np.full((2, 3), 1 / 3), np.array([0, 1]), np.array([[5.0, 0, 0]] * 2)])
    target = Answering(lambda rows: next(answers), SPEC, name="it", identity="it")
    target(X)
    for kind in ("labels", "scores"):
        with pytest.raises(UsageError, match=f"it answered with {kind}, and with probabilities before"):
            target(X)
    with pytest.raises(UsageError, match="answered with labels, and with probabilities before"):
        scores([0, 1], kind="probabilities")


def test_scores_that_look_like_probabilities_once_remain_scores() -> None:
    answers = iter([[[5.0, 0, 0], [0, 1, 0]], [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]])
    target = Answering(lambda rows: next(answers), SPEC, name="it", identity="it")
    target(X)
    assert torch.allclose(target(X)[0], torch.tensor([1.0, 0, 0]).log_softmax(0))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.full((3, 3), 1 / 3), r"must answer 2 inputs .* it gave float64 \(3, 3\)"),
        (np.zeros((2, 3, 1)), r"it gave float64 \(2, 3, 1\)"),
        (0.5, r"it gave float64 \(\)"),
        ([[0.5, np.nan, 0.5], [1, 0, 0]], "NaN or infinity to 1 of 2 inputs"),
        ([[0.5, np.inf, 0.5], [1, 0, 0]], "NaN or infinity to 1 of 2 inputs"),
        ([0, 3], r"the label 3, the classes are 0\.\.2"),
        ([-1, 0], r"the label -1, the classes are 0\.\.2"),
        ([0.5, 1.0], "whole numbers or names of classes; it gave float64"),
        (["cat", "c\x1b[31mow"], r"the class 'c \[31mow', which is none of the 3 known"),
        ([["a", "b", "c"]] * 2, "must answer with numbers"),
        ([[0.5, 0.5], [1, 0]], r"2 scores an input, there are 3 classes$"),
        ([[0.5], [0.1, 0.2]], "which is no array"),
        ({"a": 1}, "gave dict of object"),
        (None, "gave NoneType of object"),
        (np.array([[True, False, False]] * 2), "gave ndarray of bool"),
    ],
)
def test_nonsense_is_refused(answer: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        scores(answer)


def test_the_first_answer_says_how_many_classes_there_are_until_that_is_settled() -> None:
    target = Answering(lambda rows: np.full((len(rows), 5), 0.2), SPEC, name="it", identity="it", settled=False)
    assert target(X).shape == (2, 5)
    assert target.spec.classes == ("cat", "dog", "owl", "3", "4")
    with pytest.raises(UsageError, match="it has 2 outputs, the data have 3 classes"):
        scores([[0.5, 0.5]] * 2, settled=False)
    nothing = InputSpec((2,), (0.0, 1.0), ())
    with pytest.raises(UsageError, match=r'how many classes there are; .* --ask "classes=10"'):
        Answering(lambda rows: [0, 1], nothing, name="it", identity="it", settled=False)(X)


def test_questions_are_no_larger_than_the_batch_and_of_float32() -> None:
    seen: list[tuple[Any, ...]] = []

    def ask(rows: Any) -> Any:
        seen.append((rows.shape, rows.dtype, rows.flags.c_contiguous))
        return np.zeros(len(rows), int)

    target = Answering(ask, SPEC, name="it", identity="it", batch=4)
    x = torch.rand(2, 10, dtype=torch.float64).T
    assert target(x).shape == (10, 3)
    assert seen == [((4, 2), np.float32, True), ((4, 2), np.float32, True), ((2, 2), np.float32, True)]
    assert target(x[:0]).shape == (0, 3)
    with pytest.raises(UsageError, match=r"takes inputs of shape \(2,\), got \(3,\)"):
        target(torch.rand(1, 3))


def test_the_fingerprint_is_of_the_identity_and_of_the_spec() -> None:
    def made(identity: str, spec: InputSpec = SPEC) -> str:
        return Answering(lambda rows: rows, spec, name="it", identity=identity).fingerprint()

    other = InputSpec((2,), (0.0, 1.0), ("cat", "dog", "cow"))
    assert made("a") == made("a") != made("b")
    assert made("a", other) != made("a")


def test_patience_asks_again_with_pauses_that_grow() -> None:
    pauses: list[float] = []
    tries = 0

    def work() -> str:
        nonlocal tries
        tries += 1
        if tries < 10:
            raise TryAgain("is ill", 33.0 if tries == 1 else 1000.0 if tries == 2 else None)
        return "well"

    assert Patience(9, sleep=pauses.append).persist(work, "it", again=lambda: None) == "well"
    assert pauses[:2] == [33.0, 60.0]  # as it wished, but no longer than a minute
    for i, pause in enumerate(pauses[2:], 2):
        longest = min(10.0, 0.1 * 2**i)
        assert longest / 2 <= pause <= longest
    assert len(set(pauses)) == 9  # drawn by lot


def test_patience_ends_with_the_reason() -> None:
    def ill() -> None:
        raise TryAgain("is ill")

    def wrong() -> None:
        raise BadAnswer("answers nonsense")

    calls: list[int] = []
    patience = Patience(2, sleep=lambda _: None)
    with pytest.raises(NoAnswer, match=r"it is ill \(3 attempts\)"):
        patience.persist(ill, "it", again=lambda: calls.append(1))
    with pytest.raises(UsageError, match=r"it answers nonsense \(3 attempts\)"):
        patience.persist(wrong, "it", again=lambda: calls.append(1))
    assert len(calls) == 4


def test_the_rate_is_of_inputs_a_second() -> None:
    slept: list[float] = []
    patience = Patience(0, 50.0, sleep=slept.append)
    for _ in range(3):
        patience.persist(lambda: None, "it", inputs=100, again=lambda: None)
    assert len(slept) == 2  # the first goes at once
    assert slept[0] == pytest.approx(2.0, abs=0.1)
    assert slept[1] == pytest.approx(4.0, abs=0.1)  # nothing slept here: it is still four seconds ahead


@given(st.text())
def test_quoted_text_is_one_line_without_control_characters(text: str) -> None:
    shown = printable(text)
    assert len(shown) <= 200
    assert all(c.isprintable() for c in shown)


def test_ask_reads_like_parameters() -> None:
    how = asking("rate=50, timeout=10, retries=5, batch=64, repeats=3, labels=true")
    assert (how.rate, how.timeout, how.retries, how.batch, how.repeats, how.labels) == (50, 10, 5, 64, 3, True)
    assert asking(" ") == asking("")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate=0", "rate must be a number above 0"),
        ("timeout=soon", "timeout must be a number above 0, got 'soon'"),
        ("retries=-1", "retries must be a whole number from 0 up"),
        ("batch=1.5", "batch must be a whole number from 1 up"),
        ("repeats=0", "repeats must be a whole number from 1 up"),
        ("repeats=null", "repeats must be a whole number from 1 up"),
        ("classes=1", "classes must be a whole number from 2 up"),
        ("labels=1", "labels is true or false"),
        ("retry=3", "no setting 'retry'; did you mean 'retries'"),
        ("rate", "not key=value"),
        ("rate=1, rate=2", "set twice"),
    ],
)
def test_ask_refuses_nonsense(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        asking(text)


def test_probabilities_that_were_cut_are_scaled_with_a_warning(notices: pytest.LogCaptureFixture) -> None:
    out = scores([[0.6, 0.0, 0.0], [0.4, 0.4, 0.0]])
    assert torch.allclose(out.softmax(1), torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0]]), atol=1e-6)
    assert [record.levelname for record in notices.records] == ["WARNING"]
    assert "it answers with probabilities that sum to no more than 0.6, as if cut or rounded" in notices.text


@pytest.mark.parametrize(
    "rows", [[[0.3, 0.1, 0.0], [0.4, 0.4, 0.0]], [[0.9, 0.9, 0.0], [0.4, 0.4, 0.0]], [[0.7, -0.1, 0.0]] * 2]
)
def test_other_rows_are_scores(rows: Any, notices: pytest.LogCaptureFixture) -> None:
    assert torch.allclose(scores(rows), torch.tensor(rows).log_softmax(1))
    assert "the softmax is taken" in notices.text
    assert [record.levelname for record in notices.records] == ["WARNING"]


def test_scores_stay_scores_where_they_look_like_cut_probabilities() -> None:
    answers = iter([[[5.0, 0, 0], [0, 1, 0]], [[0.6, 0.0, 0.0], [0.4, 0.4, 0.0]]])
    target = Answering(lambda rows: next(answers), SPEC, name="it", identity="it")
    target(X)
    assert torch.allclose(target(X), torch.tensor([[0.6, 0.0, 0.0], [0.4, 0.4, 0.0]]).log_softmax(1))


@pytest.mark.parametrize(
    ("width", "tells", "hint"), [(4, False, True), (4, True, False), (2, False, False), (1, False, False)]
)
def test_the_hint_at_classes_is_given_where_it_would_work(width: int, tells: bool, hint: bool) -> None:
    answer = np.full((2, width), 1 / width)
    target = Answering(lambda rows: answer, SPEC, name="it", identity="it", settled=tells)
    target.settled = True  # as where nothing but labels is wanted, and no question was asked to see
    with pytest.raises(UsageError, match=f"{width} scores an input, there are 3 classes") as caught:
        target(X)
    assert (f'--ask "classes={width}"' in str(caught.value)) == hint
