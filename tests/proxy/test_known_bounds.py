"""Bounds of both tiers that all connections share: one request at a time, as new as each caller needs them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from tierstate.fetch.piece import LogicalBounds, LogicalTopic
from tierstate.proxy import known_bounds
from tierstate.proxy.known_bounds import KnownBounds
from tierstate.proxy.topic_names import TopicNames
from tierstate.runtime.pool import Pool
from tierstate.state.errors import BrokerUnavailable, TierstateError, TimedOut
from tierstate.state.ids import TopicId
from tierstate.state.offsets import Offset

PLACE = ("orders", 0)
ID = TopicId("AAAAAAAAAAAAAAAAAAAAAA")


class Reader:
    """A reader whose log grows by one record with each request. ``ages``: the ages that were allowed."""

    def __init__(self) -> None:
        self.ages: list[float] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.tiered = True
        self.error: TierstateError | None = None
        self.names: dict[TopicId, str] = {}
        self.lookups = 0

    def is_tiered(self, topic: str) -> bool:
        return self.tiered

    def topic(self, name: str) -> LogicalTopic:
        return LogicalTopic(name, ID, 1)

    def topic_names(self) -> dict[TopicId, str]:
        self.lookups += 1
        return dict(self.names)

    def bounds(self, topic: str, partition: int, max_age: float = 0.0) -> LogicalBounds:
        assert self.goes_on.wait(30)
        self.ages.append(max_age)
        if self.error is not None:
            raise self.error
        end = Offset(100 + len(self.ages))
        return LogicalBounds(Offset(3), Offset(50), Offset(49), end, end)


def run(reader: Any, test: Callable[[KnownBounds], Awaitable[None]]) -> None:
    async def main() -> None:
        with closing(Pool("metadata", 4)) as pool:
            await test(KnownBounds(reader, pool))

    asyncio.run(main())


async def log_start(bounds: KnownBounds, wait_s: float) -> Offset | None:
    known = await bounds.seldom(PLACE, wait_s)
    return None if known is None else known.bounds.log_start


def test_callers_at_the_same_time_share_one_request() -> None:
    reader = Reader()

    async def test(bounds: KnownBounds) -> None:
        known = await asyncio.gather(*(bounds.of(PLACE, 30.0) for _ in range(10)))
        assert len(set(known)) == len(reader.ages) == 1

    run(reader, test)


def test_bounds_are_used_again_until_they_are_old_or_must_be_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()

    async def test(bounds: KnownBounds) -> None:
        first = await bounds.of(PLACE, 30.0)
        assert await bounds.of(PLACE, 30.0) == first
        fresh = await bounds.of(PLACE, 30.0, fresh=True)
        assert fresh.bounds.high_watermark > first.bounds.high_watermark
        assert await bounds.of(PLACE, 30.0) == fresh
        assert reader.ages == [known_bounds.AGE_S, 0.0], "only fresh bounds must come from the broker now"
        monkeypatch.setattr(known_bounds, "AGE_S", 0.0)
        assert (await bounds.of(PLACE, 30.0)).bounds.high_watermark > fresh.bounds.high_watermark

    run(reader, test)


def test_an_answer_with_local_records_does_not_wait_for_newer_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for each of its remote partitions, once in `AGE_S`."""
    reader = Reader()

    async def test(bounds: KnownBounds) -> None:
        first = await bounds.of(PLACE, 30.0)
        monkeypatch.setattr(known_bounds, "AGE_S", 0.0)
        reader.goes_on.clear()
        assert await bounds.of(PLACE, 30.0, at_once=True) == first
        reader.goes_on.set()
        assert (await bounds.of(PLACE, 30.0)).bounds.high_watermark > first.bounds.high_watermark
        monkeypatch.setattr(known_bounds, "START_AGE_S", 0.0)
        assert (await bounds.of(PLACE, 30.0, at_once=True)).bounds.high_watermark > first.bounds.high_watermark + 1

    run(reader, test)


def test_a_request_that_began_before_is_not_fresh() -> None:
    reader = Reader()

    async def test(bounds: KnownBounds) -> None:
        reader.goes_on.clear()
        before = asyncio.create_task(bounds.of(PLACE, 30.0, fresh=True))
        await asyncio.sleep(0.01)
        after = asyncio.create_task(bounds.of(PLACE, 30.0, fresh=True))
        await asyncio.sleep(0.01)
        reader.goes_on.set()
        assert (await before).bounds.high_watermark < (await after).bounds.high_watermark

    run(reader, test)


def test_a_caller_waits_no_longer_than_it_may_and_the_request_goes_on() -> None:
    reader = Reader()

    async def test(bounds: KnownBounds) -> None:
        reader.goes_on.clear()
        with pytest.raises(TimedOut):
            await bounds.of(PLACE, 0.01)
        reader.goes_on.set()
        assert (await bounds.of(PLACE, 30.0)).topic_id == ID
        assert len(reader.ages) == 1

    run(reader, test)


def test_an_error_is_given_to_its_callers_and_the_next_caller_asks_again() -> None:
    reader = Reader()

    async def test(bounds: KnownBounds) -> None:
        reader.error = BrokerUnavailable("the leader is away")
        with pytest.raises(BrokerUnavailable):
            await bounds.of(PLACE, 30.0)
        reader.error = None
        assert (await bounds.of(PLACE, 30.0)).bounds.log_start == 3

    run(reader, test)


def test_a_log_start_for_an_answer_that_passes_is_asked_for_once_and_never_delays_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Reader()

    async def test(bounds: KnownBounds) -> None:
        assert await log_start(bounds, 30.0) == 3
        assert await log_start(bounds, 30.0) == 3
        assert len(reader.ages) == 1
        monkeypatch.setattr(known_bounds, "START_AGE_S", 0.0)
        reader.goes_on.clear()
        assert await log_start(bounds, 3600.0) == 3, "it waits for the request in the background"
        reader.goes_on.set()

    run(reader, test)


def test_a_topic_that_is_not_tiered_has_no_other_log_start_than_the_brokers() -> None:
    reader = Reader()
    reader.tiered = False

    async def test(bounds: KnownBounds) -> None:
        assert await log_start(bounds, 30.0) is None
        assert reader.ages == []

    run(reader, test)


def test_a_name_is_looked_up_once_and_an_unknown_one_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    reader: Any = Reader()

    async def main() -> None:
        with closing(Pool("metadata", 1)) as pool:
            names = TopicNames(reader, pool)
            for _ in range(3):
                await names.learn([ID.raw])
            assert (names.known, reader.lookups) == ({}, 1)
            for _ in range(3):  # clients with other ids do not make it due again
                await names.learn([bytes(15) + b"x"])
                await names.learn([ID.raw])
            assert (names.known, reader.lookups) == ({}, 2)
            reader.names[ID] = "orders"
            monkeypatch.setattr("tierstate.proxy.topic_names.AGAIN_S", 0.0)
            await names.learn([ID.raw])
            await names.learn([ID.raw])
            assert (names.known, reader.lookups) == ({ID.raw: "orders"}, 3)

    asyncio.run(main())
