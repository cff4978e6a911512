"""The view as of a position or a time: exact from the archive, and from the topic where it cannot be compacted."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.follower.archived import DAY_MS, HOUR_MS, Archived, crash, key_of, overwrite, run
from tierstate.follower.archive import cut_archive
from tierstate.follower.archive_piece import WINDOW
from tierstate.follower.digests import live_set_digest
from tierstate.follower.time_travel import Replayed, Target, archived_entries, replay_archive, replay_topic
from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.facts import UnknownFact
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.view import MemoryView, ViewStore


def view() -> MemoryView:
    return MemoryView(lambda key, value: UnknownFact(key, "nobody asks"), 1)


def digest(store: ViewStore) -> tuple[str, int]:
    return live_set_digest(store.entries(0)).hexdigest(), store.position(0)


def target(position: int | None, time: int | None) -> Target:
    return Target(None if position is None else Position(position), None if time is None else TimestampMs(time))


@dataclass
class Travel:
    world: Archived

    def at(self, position: int) -> tuple[str, int]:
        """Return the state that a following view had at this position."""
        store = view()
        store.apply(0, [entry for entry, _ in self.world.said() if entry.position < position], Position(position))
        return digest(store)

    def archive(self, position: int | None = None, time: int | None = None) -> tuple[Replayed, tuple[str, int]]:
        store = view()
        replayed = replay_archive(self.world.shelf, store, target(position, time))
        assert replayed.position == store.position(0)
        return replayed, digest(store)

    def topic(self, position: int | None = None, time: int | None = None) -> tuple[Replayed, tuple[str, int]]:
        store = view()
        replayed = replay_topic(self.world.topic, 0, store, self.world.clock.now_ms(), target(position, time))
        return replayed, digest(store)

    def cut(self, older_than: int, new_store: Callable[[], ViewStore] = view) -> Position:
        return run(self._cut(older_than, new_store))

    def crash_cut(self, older_than: int, step: int) -> bool:
        return crash(self._cut(older_than, view), step)

    def _cut(self, older_than: int, new_store: Callable[[], ViewStore]) -> Generator[str, None, Position]:
        return cut_archive(self.world.shelf, TimestampMs(older_than), new_store)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_every_position_of_any_history_is_exact_from_the_archive(history: list[tuple[int, bool, bool]]) -> None:
    world = Archived()
    for key, erase, archived in history:
        world.topic.append(0, key_of(key), None if erase else b"value")
        if archived:
            run(world.archive())
    run(world.archive())
    travel = Travel(world)
    for position in range(len(history) + 1):
        replayed, state = travel.archive(position)
        assert state == travel.at(position)
        assert (replayed.position, replayed.holes, replayed.reached) == (position, 0, True)
    assert travel.archive()[1] == travel.at(len(history))


def test_a_time_is_the_view_before_the_first_record_of_it() -> None:
    world = Archived()
    times = []
    for _ in range(5):
        times.append(world.clock.now_ms())
        world.archived(2)
        world.clock.advance(10)
    travel = Travel(world)
    for at, time in enumerate(times):
        for offset in (0, -1, -9_999):
            assert travel.archive(time=time + offset)[1] == travel.topic(time=time + offset)[1] == travel.at(2 * at)
            assert travel.archive(time=time + offset)[0].reached
        if at:
            assert travel.archive(time=time - 10_000)[1] == travel.at(2 * at - 2)


def test_a_time_after_the_last_archived_record_is_not_known_to_be_reached() -> None:
    world = Archived().archived(4)
    world.clock.advance(60)
    replayed, state = Travel(world).archive(time=world.clock.now_ms())
    assert (replayed.reached, state) == (False, Travel(world).at(4))


def test_a_position_the_archive_does_not_hold_is_refused() -> None:
    travel = Travel(Archived().archived(4))
    with pytest.raises(InvalidRequest, match=r"does not hold this position.*ends=4"):
        travel.archive(5)


def test_nothing_is_read_beyond_damage_but_everything_before_it() -> None:
    world = Archived().archived(3, 3, 3)
    name = world.names[1]
    overwrite(world.store, name.key, world.store.get(name.key)[:-1])
    travel = Travel(world)
    assert travel.archive(3)[1] == travel.at(3)
    for position in (4, 9):
        with pytest.raises(CorruptData):
            travel.archive(position)


def test_what_was_compacted_before_it_was_archived_is_counted() -> None:
    world = Archived()
    world.append(10)
    world.topic.cleaned |= {2, 5}
    run(world.archive())
    assert Travel(world).archive()[0].holes == 2
    assert Travel(world).archive(4)[0].holes == 1


# --- the topic ------------------------------------------------------------------------------------------------------


def test_a_past_that_nothing_is_missing_from_is_exact_from_the_topic() -> None:
    world = Archived()
    world.append(10)
    world.clock.advance(90 * DAY_MS / 1000)
    world.append(10)
    travel = Travel(world)
    assert travel.topic(7)[1] == travel.at(7)


def test_a_past_that_compaction_may_have_changed_is_refused() -> None:
    world = Archived()
    world.append(10)
    before = Travel(world).at(7)
    world.clock.advance(2 * DAY_MS / 1000)
    world.append(10)
    assert Travel(world).topic(7)[1] == before
    world.topic.cleaned.add(4)
    with pytest.raises(InvalidRequest, match="compaction has passed this position"):
        Travel(world).topic(7)
    assert Travel(world).topic(3)[1] == Travel(world).at(3)


def test_a_past_that_is_younger_than_the_compaction_lag_is_exact_whatever_is_missing_below_it() -> None:
    world = Archived()
    world.append(10)
    world.clock.advance(2 * DAY_MS / 1000)
    world.append(10)
    world.topic.cleaned |= {4, 6}
    travel = Travel(world)
    assert travel.topic(15)[1] == travel.at(15)
    assert travel.topic(10)[1] == travel.at(10)
    with pytest.raises(InvalidRequest, match="compaction"):
        travel.topic(9)
    assert travel.topic()[0].holes == 2


def test_a_position_beyond_the_end_of_the_topic_is_refused() -> None:
    travel = Travel(Archived().archived(4))
    with pytest.raises(InvalidRequest, match=r"ends before this position.*end=4"):
        travel.topic(5)


# --- what is too old is cut off -------------------------------------------------------------------------------------


def long_history() -> tuple[Archived, list[int]]:
    """Return four windows and a bit, a day apart, and when each began. Written once; each caller gets a copy."""
    world, begun = _written()
    return world.forked(), [int(time) for time in begun]


@cache
def _written() -> tuple[Archived, list[TimestampMs]]:
    world, begun = Archived(), list[TimestampMs]()
    world.topic.append(0, "nobody's key", b"")
    for records in (WINDOW - 1, WINDOW, WINDOW, WINDOW, 10):
        begun.append(world.clock.now_ms())
        world.append(records)
        end = world.topic.end(0)
        # most of it was compacted away: archived windows have fixed borders, however few records are left in them
        world.topic.cleaned |= {at for at in range(end - records, end - 10) if at % 100 > 2 and at > 0}
        run(world.archive())
        world.clock.advance(DAY_MS / 1000)
    return world, begun


@pytest.mark.extended
def test_a_cut_archive_still_knows_everything_that_stands() -> None:
    world, begun = long_history()
    travel = Travel(world)
    assert travel.cut(begun[2]) == 2 * WINDOW
    assert len(view_of(world).foreign(0)) == 1
    assert [first for first, _ in world.ranges] == [2 * WINDOW, 3 * WINDOW, 4 * WINDOW]
    for position in (2 * WINDOW, 2 * WINDOW + 5, 4 * WINDOW + 10):
        assert travel.archive(position)[1] == travel.at(position)
    assert travel.archive(time=begun[3])[1] == travel.at(3 * WINDOW)
    assert world.to == 4 * WINDOW + 10
    assert world.problems() == []
    world.archived(5)
    assert travel.archive()[1] == travel.at(4 * WINDOW + 15)
    for refused in ({"position": 2 * WINDOW - 1}, {"time": begun[1]}):
        with pytest.raises(InvalidRequest, match=r"does not hold this position|begins after this time"):
            travel.archive(**refused)
    entries = list(archived_entries(world.shelf))
    assert [e.position for e in entries[-15:]] == list(range(4 * WINDOW, 4 * WINDOW + 15))
    assert {e.key for e in entries} >= {entry.key for _, entry in view_of(world).entries(0)}


def view_of(world: Archived) -> MemoryView:
    store = view()
    replay_archive(world.shelf, store)
    return store


def test_a_second_cut_builds_on_the_first() -> None:
    world, begun = long_history()
    travel = Travel(world)
    travel.cut(begun[1])
    assert travel.cut(begun[4]) == 4 * WINDOW
    assert [base.position for base in world.place.bases(world.store)] == [4 * WINDOW]
    assert travel.archive()[1] == travel.at(4 * WINDOW + 10)


def test_the_newest_piece_stays_however_old_it_is() -> None:
    world, _ = long_history()
    assert Travel(world).cut(world.clock.now_ms()) == 4 * WINDOW
    assert len(world.names) == 1
    world.archived(3)
    assert world.problems() == []


def test_nothing_is_cut_that_is_young_or_no_whole_window() -> None:
    world, begun = long_history()
    assert Travel(world).cut(begun[0]) == 0
    assert len(world.names) == 5
    young = Archived().archived(3, 3)
    assert Travel(young).cut(young.clock.now_ms() + HOUR_MS) == 0
    assert len(young.names) == 2


def test_nothing_is_cut_off_a_damaged_archive() -> None:
    world, begun = long_history()
    name = world.names[1]
    data = world.store.get(name.key)
    overwrite(world.store, name.key, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptData):
        Travel(world).cut(begun[3])
    assert len(world.names) == 5


@pytest.mark.extended
def test_a_crash_before_any_step_of_a_cut_loses_nothing() -> None:
    step, crashed = 0, True
    while crashed:
        world, begun = long_history()
        travel = Travel(world)
        travel.cut(begun[1])
        crashed = travel.crash_cut(begun[3], step)
        assert travel.archive()[1] == travel.at(4 * WINDOW + 10)
        assert world.problems() == []
        assert world.to == 4 * WINDOW + 10
        travel.cut(begun[3])
        assert [first for first, _ in world.ranges] == [3 * WINDOW, 4 * WINDOW]
        assert [base.position for base in world.place.bases(world.store)] == [3 * WINDOW]
        step += 1
    assert step == 5


def test_oldest_pieces_that_went_without_a_cut_are_missed() -> None:
    world, _ = long_history()
    world.store.delete(world.names[0].key)
    assert [at for _, at, _ in world.problems()] == [0]


def test_a_damaged_base_is_found() -> None:
    world, begun = long_history()
    Travel(world).cut(begun[2])
    (base,) = world.place.bases(world.store)
    data = world.store.get(base.key)
    overwrite(world.store, base.key, data[:-1] + bytes([data[-1] ^ 1]))
    assert [(key, at) for key, at, _ in world.problems()] == [(base.key.rpartition("/")[2], base.position)]
    with pytest.raises(CorruptData):
        Travel(world).archive()
