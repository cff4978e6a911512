"""One process at a time has the lock of a bucket prefix."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.twins.manual_clock import ManualClock
from tierstate.app.opening.connection import Connection
from tierstate.app.operating.prefix_lock import PrefixLock
from tierstate.follower.object_names import LOCK
from tierstate.rules.prefix import PROOF_PERIODS, SILENT_PERIODS
from tierstate.runtime.settings import Settings
from tierstate.state.errors import Fenced, StorageUnavailable
from tierstate.storage.memory import MemoryStore

PERIOD_S = Settings().prefix.heartbeat


class Living(ManualClock):
    """A clock that calls each of ``others`` after every sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Callable[[], object]] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        for each in self.others:
            each()


class Answering(MemoryStore):
    """Takes a write, and loses the answer ``lost`` times."""

    lost = 0

    def replace_if_same(self, key: str, data: bytes | bytearray | memoryview, previous: bytes) -> bool:
        done = super().replace_if_same(key, data, previous)
        if self.lost:
            self.lost -= 1
            raise StorageUnavailable("no answer")
        return done


class Bucket:
    def __init__(self) -> None:
        self.clock = Living()
        self.store = Answering(self.clock)

    def process(self, period_s: float = PERIOD_S) -> PrefixLock:
        connection = Connection(Settings.model_validate({"prefix": {"heartbeat": period_s}}), self.clock)
        vars(connection)["store"] = self.store
        return PrefixLock(connection, "recover")


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.mark.parametrize("period_s", [PERIOD_S, 1.0])
def test_a_second_process_is_refused_while_the_first_one_goes_on_and_is_told_its_name(
    bucket: Bucket, period_s: float
) -> None:
    """The second process waits by the period of the first one, even if its own period is shorter."""
    first, second = bucket.process(), bucket.process(period_s)
    first.take()
    started = bucket.clock.monotonic()

    def beat() -> None:
        if bucket.clock.monotonic() - started >= PERIOD_S:
            first.beat()

    bucket.clock.others.append(beat)
    with pytest.raises(Fenced, match=r"another command has the lock .* holder=\S+@\S+, process \d+, tierstate recover"):
        second.take()
    first.require()


def test_the_next_process_need_not_wait_for_one_that_ended(bucket: Bucket) -> None:
    first, second = bucket.process(), bucket.process()
    first.take()
    first.leave()
    before = bucket.clock.monotonic()
    second.take()
    assert bucket.clock.monotonic() == before
    second.require()


def test_a_process_that_hung_is_followed_by_one_other_and_does_nothing_more(bucket: Bucket) -> None:
    first, second, third = (bucket.process() for _ in range(3))
    first.take()
    before = bucket.clock.monotonic()

    def third_takes_over() -> None:
        if bucket.clock.monotonic() >= before + SILENT_PERIODS * PERIOD_S:
            bucket.clock.others.clear()
            third.take()

    bucket.clock.others.append(third_takes_over)
    with pytest.raises(Fenced, match="another command has the lock"):
        second.take()
    third.require()
    for _ in range(2):
        with pytest.raises(Fenced, match="another command has the lock"):
            first.require()
    first.leave()
    third.beat()
    third.require()


def test_a_process_that_hung_goes_on_where_nobody_took_over(bucket: Bucket) -> None:
    first = bucket.process()
    first.take()
    bucket.clock.advance(10 * PERIOD_S)
    first.require()


def test_a_holder_that_could_not_write_does_nothing_before_it_can(bucket: Bucket) -> None:
    first = bucket.process()
    first.take()
    bucket.clock.advance(PROOF_PERIODS * PERIOD_S)
    bucket.store.lost = 1
    with pytest.raises(StorageUnavailable):
        first.require()
    first.require()  # the write whose answer was lost is its own


def test_a_holder_whose_lock_was_deleted_stops(bucket: Bucket) -> None:
    first = bucket.process()
    first.take()
    bucket.store.delete(LOCK)
    first.beat()
    with pytest.raises(Fenced, match="was deleted"):
        first.require()


def test_a_damaged_lock_is_taken_over(bucket: Bucket) -> None:
    bucket.store.put_if_absent(LOCK, b"damage")
    second = bucket.process()
    second.take()
    second.require()


def test_of_two_that_take_at_once_one_is_refused(bucket: Bucket) -> None:
    first, second = bucket.process(), bucket.process()
    looked = second._standing
    second._standing = lambda: (first.take(), None)[1] if not bucket.store.writes else looked()  # type: ignore[method-assign, func-returns-value]
    with pytest.raises(Fenced, match="another command has the lock"):
        second.take()
    first.require()
