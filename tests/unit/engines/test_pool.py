"""The pool without Ray: actors that are played, one call at a time, so that every order of events can be made."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.core.errors import INTERNAL, ModelFailed, UsageError
from assay.engines import pool
from assay.engines.actors import Lost
from assay.engines.pool import AHEAD, DEATHS, NoWorkers, Pool, check_travels
from assay.subjects.asked import Asked
from assay.subjects.sources.module import ModuleTarget


@dataclass
class Played:
    """An actor: the jobs it holds; it doubles them, one a call, the oldest first."""

    name: int
    held: list[tuple[int, int]] = field(default_factory=list)
    dead: bool = False
    stuck: bool = False
    got: list[int] = field(default_factory=list)

    def step(self, jobs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        self.held += jobs
        self.got += [job for _, job in jobs]
        return [(number, 2 * job) for number, job in [self.held.pop(0)]] if self.held else []


@dataclass(eq=False)
class Call:
    actor: Played
    jobs: list[tuple[int, int]] | None  # None: the one that makes it ready


class Hands:
    """Where played actors come from; ``kills`` says which jobs end the process that holds them."""

    def __init__(self, wanted: int, room: int = 1, kills: Callable[[int], bool] = lambda job: False) -> None:
        self.wanted, self.room, self.kills = wanted, room, kills
        self.actors: list[Played] = []
        self.ended: list[Played] = []
        self.starts = True
        self.says: list[tuple[int, str]] = []
        self.again: list[tuple[int, int]] = []  # delivered once more with every result

    def start(self) -> tuple[Played, Call]:
        self.actors.append(Played(len(self.actors)))
        return self.actors[-1], Call(self.actors[-1], None)

    def step(self, actor: Played, jobs: list[tuple[int, int]]) -> Call:
        return Call(actor, jobs)

    def wait(self, calls: Sequence[Call], seconds: float) -> list[Call]:
        return [call for call in calls if not call.actor.stuck and (self.starts or call.jobs is not None)]

    def get(self, call: Call) -> Any:
        if call.actor.dead or any(self.kills(job) for _, job in (*call.actor.held, *(call.jobs or ()))):
            raise Lost("it died")
        if call.jobs is None:
            return self.room, []
        done = call.actor.step(call.jobs)
        again, self.again = self.again, [*self.again, *done]
        return [*done, *again], self.says

    def end(self, actor: Played) -> None:
        self.ended.append(actor)


def made(hands: Hands) -> Pool[int, int]:
    workers: Pool[int, int] = Pool(hands)
    workers.ready()
    return workers


def never() -> bool:
    return False


def test_results_come_in_the_order_of_jobs_and_each_once_though_all_are_delivered_again_and_again() -> None:
    hands = Hands(3, room=2)
    assert list(made(hands).map(range(50), never)) == [(job, 2 * job) for job in range(50)]
    assert len(hands.again) == 50, "every result was there more than once"


def test_jobs_are_drawn_no_further_ahead_than_there_is_room() -> None:
    drawn: list[int] = []

    def jobs() -> Iterator[int]:
        for job in range(100):
            drawn.append(job)
            yield job

    workers = made(Hands(2, room=3))
    furthest = 0
    for done, (job, _) in enumerate(workers.map(jobs(), never)):
        assert job == done
        furthest = max(furthest, len(drawn) - done)
    assert furthest <= AHEAD * 2 * 3 + 1
    assert drawn == list(range(100))


def test_few_jobs_are_shared_evenly() -> None:
    hands = Hands(2, room=9)
    assert len(list(made(hands).map(range(8), never))) == 8
    assert [len(actor.got) for actor in hands.actors] == [4, 4]


def test_what_a_worker_held_when_it_died_is_worked_by_another_and_the_loss_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hands = Hands(2, room=3)
    workers = made(hands)
    found = []
    for job, result in workers.map(range(40), never):
        found.append((job, result))
        if job == 7:
            hands.actors[0].dead = True
    assert found == [(job, 2 * job) for job in range(40)]
    assert workers.state() == {"workers": 2, "wanted": 2, "lost": 1, "waiting": 0}
    assert [record.getMessage().split(";")[0] for record in caplog.records] == ["a worker is lost (it died)"]
    assert hands.ended == [hands.actors[0]]


def test_a_job_that_ends_every_worker_is_given_back_as_a_failure_of_the_model_and_no_other_is() -> None:
    hands = Hands(2, room=3, kills=lambda job: job == 11)
    found = dict(made(hands).map(range(20), never))
    failed = found.pop(11)
    assert isinstance(failed, ModelFailed)
    assert f"died {DEATHS} times" in str(failed)
    assert found == {job: 2 * job for job in range(20) if job != 11}
    assert len(hands.actors) == 2 + DEATHS


def test_a_late_job_is_given_to_an_idle_worker_too_and_the_first_result_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "LATE_SECONDS", 0.0)
    hands = Hands(2)
    workers = made(hands)
    hands.actors[0].stuck = True
    assert list(workers.map(range(6), never)) == [(job, 2 * job) for job in range(6)]
    assert hands.actors[0].got == []  # it is still at its first call
    hands.actors[0].stuck = False  # what it says now of jobs that are done is nobody's
    assert list(workers.map(range(6, 12), never)) == [(job, 2 * job) for job in range(6, 12)]
    assert workers.state()["lost"] == 0


def test_it_stops_when_it_is_told_to_and_another_map_may_follow() -> None:
    hands = Hands(1)
    workers = made(hands)
    hands.actors[0].stuck = True
    asked = iter([False, False, True])
    assert list(workers.map(range(5), lambda: next(asked))) == []
    hands.actors[0].stuck = False
    assert list(workers.map([7], never)) == [(7, 14)]


def test_without_workers_it_waits_warns_once_and_ends_with_a_message_that_says_what_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ASSAY_RAY_WAIT", "0.2")
    hands = Hands(2)
    hands.starts = False
    with pytest.raises(NoWorkers, match="what was committed is kept, the same command goes on") as ended:
        made(hands)
    assert str(ended.value).endswith("ASSAY_RAY_WAIT=SECONDS waits longer")
    assert ended.value.exit_code == INTERNAL
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "waiting for one for up to 0.2 s" in caplog.text


def test_what_workers_say_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    hands = Hands(2)
    hands.says = [(logging.WARNING, "the model is odd")]
    list(made(hands).map(range(9), never))
    assert [record.getMessage() for record in caplog.records] == ["the model is odd"]


def test_models_that_only_answer_stay_in_one_process(linear_target: Callable[..., ModuleTarget]) -> None:
    target = linear_target()
    check_travels(target)
    with pytest.raises(UsageError, match="leave --ray out"):
        check_travels(target, Asked(target))
