"""The archive of a tier-state partition: written in windows by any agent that leads, read only when it is whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.follower.archived import HOUR_MS, OWNER, Archived, crash, run
from tests.twins.manual_clock import ManualClock
from tierstate.follower.archive_chain import archived_to, chain_of
from tierstate.follower.archive_piece import WINDOW
from tierstate.follower.archives import archived_topics, places
from tierstate.state.errors import CorruptData, HistoryBroken, InvalidRequest
from tierstate.state.ids import FactId
from tierstate.state.keys import KeyKind, said_by_people
from tierstate.state.objects import ObjectInfo
from tierstate.state.offsets import Position
from tierstate.storage.memory import MemoryStore


def test_archived_facts_are_read_back_with_their_times() -> None:
    world = Archived()
    world.append(5)
    world.clock.advance(60)
    world.archived(WINDOW, 7)
    assert world.read() == world.said()
    assert world.to == world.topic.end(0) == WINDOW + 12
    assert world.problems() == []


def test_a_single_record_that_is_missing_from_the_archive_is_not_called_archived() -> None:
    world = Archived().archived(10, 1, 9)
    world.store.delete(world.names[1].key)
    assert world.to == 10
    assert chain_of(world.store, world.place).missing == (10, 10)


def test_a_piece_of_the_one_record_after_the_base_is_read() -> None:
    world = Archived().archived(10, 1)
    world.store.put_if_absent(world.place.base(Position(10)), b"a live set")
    assert [(name.first, name.last) for name in chain_of(world.store, world.place).names] == [(10, 10)]


@pytest.mark.parametrize("known", [10, 0])
def test_an_archive_that_lost_all_pieces_reports_it_and_is_not_restarted(known: int) -> None:
    """A new process learns it from the base alone."""
    world = Archived().archived(10)
    if not known:
        world.store.put_if_absent(world.place.base(Position(10)), b"a live set")
    world.store.delete(world.names[0].key)
    world.append(5)
    with pytest.raises(CorruptData, match="are gone"):
        run(world.archive(known=known))
    assert world.names == []


def test_windows_have_fixed_borders() -> None:
    world = Archived().archived(3, 2 * WINDOW, 5)
    assert world.ranges == [
        (0, 2),
        (3, WINDOW - 1),
        (WINDOW, 2 * WINDOW - 1),
        (2 * WINDOW, 2 * WINDOW + 2),
        (2 * WINDOW + 3, 2 * WINDOW + 7),
    ]
    assert world.read() == world.said()


def test_a_window_that_is_not_full_waits_for_its_oldest_record_to_be_old_enough() -> None:
    world = Archived()
    world.append(WINDOW + 10)
    world.clock.advance(1800)
    world.append(10)
    run(world.archive(HOUR_MS))
    assert world.ranges == [(0, WINDOW - 1)]
    world.clock.advance(1800)
    run(world.archive(HOUR_MS))
    assert world.ranges == [(0, WINDOW - 1), (WINDOW, WINDOW + 19)]


class AskedStore(MemoryStore):
    """A store that remembers the requests."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.asked: list[str] = []

    def get(self, key: str, limit: int | None = None) -> bytes:
        self.asked.append("get")
        return super().get(key, limit)

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        self.asked.append("list")
        return super().list(prefix, start_after)


def test_a_partition_that_has_nothing_old_enough_to_archive_costs_one_list_and_no_read() -> None:
    world = Archived()
    world.store = store = AskedStore()
    world.archived(5).append(5)
    read = world.topic.reads
    store.asked.clear()
    assert run(world.archive(HOUR_MS, known=5)) == 5
    assert (store.asked, world.topic.reads) == (["list"], read)


def test_records_of_which_one_is_old_are_read_however_few_they_are() -> None:
    world = Archived().archived(5)
    world.append(1)
    world.clock.advance(3600)
    world.append(1)
    assert run(world.archive(HOUR_MS, known=5)) == 7


def test_a_piece_ends_at_its_size_too() -> None:
    world = Archived()
    for number in range(3):
        world.topic.append(0, f"key-{number}", bytes(9 << 20))
    run(world.archive())
    assert world.ranges == [(0, 1), (2, 2)]
    assert world.read() == world.said()


def test_archiving_again_writes_nothing_until_there_is_a_new_fact() -> None:
    world = Archived().archived(5)
    assert list(world.archive()) == []
    world.append(1)
    assert list(world.archive(known=world.to)) == ["put archive"]
    assert world.ranges == [(0, 4), (5, 5)]


def test_positions_stay_continuous_where_compaction_left_holes() -> None:
    world = Archived()
    world.append(2 * WINDOW + 50)
    world.topic.cleaned |= {0, 7, *range(WINDOW - 3, 2 * WINDOW + 5)}
    run(world.archive())
    assert world.ranges == [(0, WINDOW - 1), (WINDOW, 2 * WINDOW - 1), (2 * WINDOW, 2 * WINDOW + 49)]
    assert [piece.holes for piece in world.pieces()] == [5, WINDOW, 5]
    assert world.read() == world.said()
    assert world.problems() == []


def test_a_topic_that_ends_before_its_archive_is_not_archived_on() -> None:
    world = Archived().archived(10)
    world.topic.truncate(0, 6)
    with pytest.raises(HistoryBroken, match="ends at 6"):
        run(world.archive())


def test_an_archive_of_another_cluster_is_not_continued() -> None:
    world = Archived().archived(10)
    world.identity = type(world.identity)("another", world.topic.topic_id, 1)
    world.append(1)
    with pytest.raises(InvalidRequest, match="another cluster"):
        run(world.archive())


# --- how far --------------------------------------------------------------------------------------------------------


def test_the_end_of_the_archive_is_known_from_names_alone() -> None:
    world = Archived()
    assert world.to == 0
    world.archived(3, 4, WINDOW, 2)
    assert world.to == WINDOW + 9
    for position in range(0, WINDOW + 9, 97):
        assert archived_to(world.store, world.place, Position(position)) == WINDOW + 9


def test_the_archive_reaches_only_to_the_first_gap() -> None:
    world = Archived().archived(3, 4, 2)
    world.store.delete(world.names[1].key)
    assert world.to == 3


# --- two writers, and crashes ---------------------------------------------------------------------------------------


def test_a_writer_that_was_overtaken_continues_behind_the_other() -> None:
    world = Archived()
    world.append(5)
    slow = world.archive()
    next(slow)  # about to put 0 to 4
    world.append(3)
    run(world.archive())
    run(slow)
    assert world.ranges == [(0, 4), (0, 7)]
    world.archived(2)
    assert world.ranges == [(0, 4), (0, 7), (8, 9)]
    assert world.read() == world.said()
    assert world.problems() == []


def test_a_writer_that_meets_the_very_same_piece_goes_on() -> None:
    world = Archived()
    world.append(5)
    slow = world.archive()
    next(slow)
    run(world.archive())
    run(slow)
    assert world.ranges == [(0, 4)]
    assert world.problems() == []


def test_a_writer_that_meets_a_piece_of_the_same_name_continues_that_one() -> None:
    world = Archived()
    world.append(WINDOW + 5)
    slow = world.archive()
    next(slow)  # about to put the first window
    world.topic.truncate(0, WINDOW + 5)  # nothing is lost, but a new leader epoch is in the other's piece
    world.append(1)
    run(world.archive(HOUR_MS))
    run(slow)
    assert world.ranges == [(0, WINDOW - 1), (WINDOW, WINDOW + 5)]
    assert next(world.pieces()).header.epoch == 1
    assert world.problems() == []


def test_a_late_piece_may_become_the_end_of_the_chain() -> None:
    world = Archived().archived(3)
    world.append(2)
    other = world.archive()
    next(other)  # about to put 3 to 4
    world.append(4)
    slow = world.archive()
    next(slow)  # about to put 3 to 8
    run(other)
    world.append(3)
    run(world.archive())
    run(slow)
    assert world.ranges == [(0, 2), (3, 4), (3, 8), (5, 11)]
    assert world.to == 12
    assert world.read() == world.said()
    assert world.problems() == []
    world.archived(1)
    assert world.read() == world.said()


def test_a_late_piece_that_ends_where_another_ends_does_not_take_its_place() -> None:
    world = Archived()
    world.append(5)
    other = world.archive()
    next(other)  # about to put 0 to 4
    world.append(3)
    slow = world.archive()
    next(slow)  # about to put 0 to 7
    run(other)
    run(world.archive())
    world.archived(2)
    run(slow)
    assert world.ranges == [(0, 4), (0, 7), (5, 7), (8, 9)]
    assert world.read() == world.said()
    assert world.problems() == []


def test_a_crash_before_any_step_changes_nothing_of_what_is_archived_in_the_end() -> None:
    step = 0
    while True:
        world = Archived()
        world.append(2 * WINDOW + 5)
        crashed = crash(world.archive(), step)
        run(world.archive())
        assert world.ranges == [(0, WINDOW - 1), (WINDOW, 2 * WINDOW - 1), (2 * WINDOW, 2 * WINDOW + 4)]
        assert world.problems() == []
        if not crashed:
            break
        step += 1
    assert step == 3


def test_a_put_that_landed_though_it_failed_is_continued() -> None:
    world = Archived()
    world.append(5)
    act = world.archive()
    next(act)
    run(world.archive())  # stands for the put whose answer was lost
    act.close()
    world.archived(5)
    assert world.ranges == [(0, 4), (5, 9)]
    assert world.problems() == []


def test_the_store_lists_the_owners_of_its_archives() -> None:
    world = Archived().archived(3)
    world.store.put_if_absent("_tierstate/check/1", b"")
    world.store.put_if_absent(world.place.checkpoint(5), b"")
    assert places(world.store) == [world.place]
    assert archived_topics(world.store) == [world.identity]


def test_only_facts_of_people_are_archived_at_once() -> None:
    world = Archived().archived(5)
    world.append(5)
    assert list(world.archive(HOUR_MS, people_spoke=True)) == [], "they said nothing yet"
    world.topic.append(0, f"{OWNER}/0/order/{FactId.of(bytes(16))}", b"pause")
    world.append(2)
    assert list(world.archive(HOUR_MS)) == [], "nobody told that they spoke"
    run(world.archive(HOUR_MS, people_spoke=True))
    assert world.ranges == [(0, 4), (5, 12)]
    assert list(world.archive(HOUR_MS, people_spoke=True)) == []


@pytest.mark.parametrize("kind", list(KeyKind))
def test_facts_of_people_are_those_without_a_manifest_or_an_agent(kind: KeyKind) -> None:
    kinds = {KeyKind.ORDER, KeyKind.HOLD, KeyKind.LINEAGE, KeyKind.SETTLED, KeyKind.GAP, KeyKind.MISSING}
    assert said_by_people(f"{OWNER}/0/{kind}/{FactId.of(bytes(16))}") is (kind in kinds)


def test_a_key_of_any_form_is_checked_for_its_author() -> None:
    assert not any(said_by_people(key) for key in ("", "order", "meta/topic", "a/b", "hex:00"))
