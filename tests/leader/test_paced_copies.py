"""The byte rate of an agent covers all that its copies send, failed attempts too; a copy that waits can be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.leader.world import TRIMS_ALL, Process, World
from tests.twins.counting_ids import CountingIds
from tests.twins.manual_clock import ManualClock
from tierstate.leader.open import LeaderRole, Parts, open_leader, while_allowed
from tierstate.rules.observed import PROVEN, PrefixProof
from tierstate.rules.reasons import Reason, Why
from tierstate.runtime.listener import CopyFailed, Event, SegmentCopied
from tierstate.runtime.quota import ByteQuota
from tierstate.runtime.settings import Settings
from tierstate.state.errors import StorageFull, StorageUnavailable, TierstateError, Unavailable
from tierstate.state.object_keys import ObjectKind
from tierstate.state.segment import SegmentState
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import DEFAULT_PART_BYTES, Data

RATE = 3_000
"""Bytes a second: fewer than the indexes of a segment have."""


class Wire:
    """A store that notes when how many bytes arrive, whatever becomes of them."""

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        self._store, self._clock, self.began = store, clock, clock.monotonic()
        self.sent: dict[str, int] = {}
        self.too_early: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._note(key, data)
        self._store.put_if_absent(key, data)

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        return self._store.put_stream(key, self._noted(key, pieces))

    def _noted(self, key: str, pieces: Iterable[Data]) -> Iterator[Data]:
        for piece in pieces:
            self._note(key, piece)
            yield piece

    def _note(self, key: str, data: Data) -> None:
        self.sent[key] = self.sent.get(key, 0) + len(data)
        if self.total > RATE * (self._clock.monotonic() - self.began) + RATE + 1:
            self.too_early.append(key)

    @property
    def total(self) -> int:
        return sum(self.sent.values())


def paced(world: World, quota: ByteQuota) -> tuple[Process, Wire]:
    process, wire = world.process(), Wire(world.store, world.clock)
    store: Any = wire
    process.tools = replace(process.tools, store=store, throttle=quota.take)
    return process, wire


@pytest.mark.parametrize("case", ["none", "transactions", "zstd"])
def test_copies_send_no_byte_of_any_object_before_its_time(case: str, new_world: Callable[..., World]) -> None:
    world = new_world(case, TRIMS_ALL)
    process, wire = paced(world, ByteQuota(world.clock, RATE))
    process.copy_all()
    assert wire.too_early == []
    assert wire.sent == {info.key: info.size for info in world.store.list()}
    assert {key.rpartition(".")[2] for key in wire.sent} == {"log", "indexes", "rsm-manifest"}


@pytest.mark.parametrize("error", [StorageFull("no room"), StorageUnavailable("no answer")])
def test_attempts_that_fail_are_paid_for_like_those_that_do_not(error: Exception, world: World) -> None:
    process, wire = paced(world, ByteQuota(world.clock, RATE))
    session = process.begin()

    def faults(operation: str, key: str, writes: int) -> None:
        if operation != "delete" and writes % 7 == 6:
            raise error

    world.faults = faults
    for _ in range(8):
        with suppress(TierstateError):
            process.copy_next(session)
    assert len({key.rpartition("/")[2].partition(".")[0] for key in wire.sent}) == 8, "each attempt has a new id"
    assert len(world.objects()) < 3 * 8
    assert wire.too_early == []


def test_a_rate_of_zero_is_none(world: World) -> None:
    process, wire = paced(world, ByteQuota(world.clock, 0))
    process.copy_all()
    assert wire.total > 0
    assert world.clock.monotonic() == wire.began


def leader_of(world: World, **settings: dict[str, Any]) -> tuple[LeaderRole, list[Event]]:
    """Return a leader for this world, wired as `tierstate agent` does, and its events."""
    context, events = world.process().context, list[Event]()
    leader = open_leader(
        Settings.model_validate({"tiering": {"include": [".*"]}, **settings}),
        world.log,
        Parts(world.broker, world.topic, context.view, world.store, world.clock, CountingIds(77)),
        events.append,
        "b1:1",
    )
    return leader, events


def test_an_agents_copies_share_the_rate_of_its_settings(world: World) -> None:
    leader, events = leader_of(world, copy={"quota": "10KiB"})
    began = world.clock.monotonic()
    leader.agent.run_once(threading.Event())
    copied = [event for event in events if isinstance(event, SegmentCopied)]
    assert len(copied) == len(world.rolled)
    seconds = (sum(event.object_bytes for event in copied) - 10_240) / 10_240
    assert leader.quota.waited >= seconds - 0.001
    assert world.clock.monotonic() - began >= seconds - 0.001


def test_an_agents_attempt_aborts_itself_when_it_is_older_than_half_the_sweep_grace(world: World) -> None:
    leader, events = leader_of(world, sweep={"grace": "2h"})
    slow = [3500.0, 3700.0]

    def faults(operation: str, key: str, writes: int) -> None:
        if operation == "complete" and slow:
            world.clock.advance(slow.pop(0))

    world.faults = faults
    worker = leader.new_worker(world.partition, world.name)
    while worker.advance():
        pass
    (copied,) = [event for event in events if isinstance(event, SegmentCopied)]
    assert copied.seconds == pytest.approx(3500)
    (failed,) = [event for event in events if isinstance(event, CopyFailed)]
    assert "the copy took too long" in failed.error
    assert "seconds=3600" in failed.error


class Stopping(ManualClock):
    """A clock on which a test stops the agent while it sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.asleep()


def test_a_copy_that_waits_for_its_rate_is_stopped_at_once_and_leaves_nothing(world: World) -> None:
    clock = Stopping()
    quota = ByteQuota(clock, 10)
    process, wire = paced(world, quota)
    session = process.begin()
    clock.asleep = quota.stop
    began = clock.monotonic()
    with pytest.raises(Unavailable, match="stopping"):
        process.copy_next(session)
    assert clock.monotonic() - began <= 1
    assert wire.sent == {}
    assert world.objects() == set()
    assert world.states() == [SegmentState.DELETE_SEGMENT_FINISHED]


def test_a_copy_without_a_rate_is_stopped_before_its_next_piece(world: World) -> None:
    quota = ByteQuota(world.clock, 0)
    process, _ = paced(world, quota)
    process.tools = replace(process.tools, format=replace(process.tools.format, compression="zstd", chunk_bytes=1000))
    session, requests = process.begin(), list[str]()

    def stop(operation: str, key: str, writes: int) -> None:
        requests.append(operation)
        if requests.count("part") == 2:
            quota.stop()

    world.faults = stop
    with pytest.raises(Unavailable, match="stopping"):
        process.copy_next(session)
    # one request asks whether the store is there, before the first fact; after the two pieces come their deletions
    assert requests == ["head", "part", "part", "delete", "delete", "delete"]
    assert world.objects() == set()


def test_a_segment_is_not_readable_if_copying_was_forbidden_after_its_last_object(world: World) -> None:
    """Its objects may be in a store that stands still, because all objects move to another one (0108)."""
    process = world.process()
    forbidden = Why(Reason.PREFIX_UNPROVEN, "its objects move")

    def proof() -> PrefixProof:
        written = any(key.endswith(ObjectKind.MANIFEST) for key in world.objects())
        return PrefixProof(forbidden, forbidden, forbidden) if written else PROVEN

    process.tools = replace(process.tools, throttle=while_allowed(lambda size: None, proof))
    with pytest.raises(Unavailable, match="its objects move"):
        process.copy_next(process.begin())
    assert world.view().readable == ()
    assert not any("copy-finished" in key for key in world.topic.keys())
