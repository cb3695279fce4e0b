"""The desk of a training on Ray, without Ray."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from assay.engines.desk import BEHIND, DEATHS, Desk


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_who_begins_again_goes_on_from_the_last_epoch_that_lies_there() -> None:
    async def work() -> None:
        desk = Desk(0, None)
        assert await desk.begin(0, None) == (False, None)
        await desk.epoch(1, b"one")
        assert await desk.begin(0, None) == (False, b"one")
        told = await desk.take(0.01)
        assert told.messages == [("epoch", b"one")]
        assert (told.alive, told.lost) == (1, 1)

    run(work())


def test_an_epoch_that_is_delivered_twice_counts_once() -> None:
    async def work() -> None:
        desk = Desk(2, b"before")
        for number in (2, 3, 3):
            await desk.epoch(number, b"%d" % number)
        assert (await desk.take(0.01)).messages == [("epoch", b"3")]

    run(work())


def test_workers_wait_for_a_driver_that_is_slow() -> None:
    async def work() -> None:
        desk = Desk(0, None)
        for number in range(1, BEHIND + 1):
            await desk.epoch(number, b"")
        late = asyncio.create_task(desk.epoch(BEHIND + 1, b"late"))
        await asyncio.sleep(0.01)
        assert not late.done()
        assert len((await desk.take(0.01)).messages) == BEHIND
        await late
        assert (await desk.take(0.01)).messages == [("epoch", b"late")]

    run(work())


def test_a_worker_that_dies_again_and_again_in_one_epoch_ends_the_training() -> None:
    async def work() -> None:
        desk = Desk(0, None)
        for _ in range(DEATHS):
            assert not (await desk.begin(1, None))[0]
        await desk.epoch(1, b"")  # what came of it begins to count anew
        for _ in range(DEATHS):
            assert not (await desk.begin(1, None))[0]
        assert (await desk.begin(1, None))[0]
        (_, (kind, failure)) = (await desk.take(0.01)).messages
        assert kind == "failed"
        assert f"{DEATHS} times" in failure.text
        assert await desk.beat(0, None, 0)  # the others are to stop

    run(work())


def test_the_first_end_is_the_end() -> None:
    async def work() -> None:
        desk = Desk(0, None)
        await desk.finish(b"made")
        await desk.finish(b"made again")
        assert (await desk.take(0.01)).messages == [("done", b"made")]
        assert await desk.begin(0, None) == (True, None)

    run(work())


def test_what_all_workers_say_is_said_once_and_cases_of_all_groups_are_counted() -> None:
    async def work() -> None:
        desk = Desk(0, None)
        await desk.say(30, "little memory")
        await desk.say(30, "little memory")
        await desk.begin(0, None)
        await desk.beat(0, (0, 0.5), 100)
        await desk.begin(0, None)
        await desk.beat(0, (0, 0.1), 20)
        told = await desk.take(0.01)
        assert told.messages == [("say", (30, "little memory"))]
        assert (told.seen, told.place) == (120, (0, 0.1))

    run(work())
