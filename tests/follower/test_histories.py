"""A broker is restored from an older backup: what remains of the lost future is never continued as if it were ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.follower.archived import OWNER, Archived, CleanedTopic, key_of, run
from tests.follower.checkpointed import World
from tests.follower.said import PARTITIONS
from tierstate.follower.archive_chain import verify_archive
from tierstate.follower.archive_piece import WINDOW
from tierstate.follower.archives import (
    Archives,
    archived_topics,
    begin_history,
    find_parting,
    has_parted,
    left_behind,
    newest_history,
    places,
    say_parted,
)
from tierstate.follower.as_of import MIN_COMPACTION_LAG_MS, check_same, parted
from tierstate.follower.digests import live_set_digest
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.generations import InMemory
from tierstate.follower.object_names import TierPlace
from tierstate.follower.rocksdb_view import RocksView, ViewIdentity
from tierstate.follower.time_travel import replay_archive
from tierstate.follower.view_identity import Shelf
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import Fenced, HistoryBroken, InvalidRequest, PositionLost, StorageUnavailable
from tierstate.state.ids import FactId, RemoteSegmentId
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.view import MemoryView
from tierstate.storage.memory import MemoryStore


def restored(to: int = 6, regrown: int = 10) -> Archived:
    """Return a world that was archived to 10, put back to ``to``, and has grown again; epochs do not show it."""
    world = Archived().archived(10)
    world.topic.restore(0, to)
    world.clock.advance(60)
    world.append(regrown, b"another")
    return world


def archives(world: Archived) -> Archives:
    return Archives(world.topic, world.store, world.identity, world.clock)


# --- the archive ------------------------------------------------------------------------------------------------------


def test_an_archive_is_not_continued_by_another_history() -> None:
    world = restored()
    with pytest.raises(HistoryBroken, match="another record") as broken:
        run(world.archive())
    assert world.ranges == [(0, 9)]
    assert "archived_to=10" in str(broken.value)


def test_it_is_not_continued_either_when_the_break_comes_while_it_is_being_read() -> None:
    world = Archived().archived(10)
    world.append(5)
    act = world.archive()
    assert next(act) == "put archive"
    act.close()
    slow = world.archive()
    world.topic.restore(0, 6)
    world.append(20, b"another")
    with pytest.raises(HistoryBroken):
        run(slow)
    assert world.ranges == [(0, 9)]


def test_where_compaction_took_the_record_that_tells_the_epoch_tells() -> None:
    world = Archived().archived(10)
    world.topic.truncate(0, 6)
    world.append(10, b"another")
    world.topic.cleaned.add(9)
    with pytest.raises(HistoryBroken, match="truncated"):
        run(world.archive())


def test_compacted_records_are_no_evidence_of_a_lost_history() -> None:
    world = Archived().archived(10)
    world.append(5)
    world.topic.cleaned |= {8, 9}
    run(world.archive())
    assert world.ranges == [(0, 9), (10, 14)]
    assert archives(world).problem(0) is None


def test_every_agent_sees_that_they_have_parted_also_where_nothing_is_to_be_written() -> None:
    for world in (restored(to=6, regrown=0), restored(to=6, regrown=4), restored(to=6, regrown=10)):
        seen = archives(world)
        assert "parted from its archive" in (seen.problem(0) or "")
        with pytest.raises(HistoryBroken):
            seen.check(0)


def test_a_parting_that_one_agent_saw_is_known_to_all_for_ever() -> None:
    world = restored()
    assert archives(world).problem(0) is not None
    world.topic.cleaned |= set(range(10))  # nothing that tells is left
    assert "parted from its archive" in (archives(world).problem(0) or "")
    assert has_parted(world.store, world.topic.topic_id, 0) is not None


def test_a_parting_that_another_agent_sees_is_known_within_a_minute() -> None:
    world = Archived().archived(10)
    seen = archives(world)
    assert seen.problem(0) is None
    say_parted(world.store, world.topic.topic_id, 0, world.clock.now_ms(), "seen by another agent")
    world.clock.advance(61)
    assert "seen by another agent" in (seen.problem(0) or "")
    with pytest.raises(HistoryBroken):
        seen.check(0)


def test_a_process_that_saw_nothing_ends_once_a_person_began_the_next_history() -> None:
    world = Archived().archived(10)
    seen = archives(world)
    assert seen.problem(0) is None
    begun(world)
    world.clock.advance(61)
    assert seen.problem(0) is not None
    with pytest.raises(Fenced, match="restart this process"):
        seen.check_over()


def test_a_recreated_topic_has_parted_from_nothing() -> None:
    class MadeAgain(CleanedTopic):
        def current_topic_id(self) -> str:
            return "CCCCCCCCCCCCCCCCCCCCCg"

    world = Archived().archived(10)
    world.topic = MadeAgain(world.clock)
    assert archives(world).broken is None
    archives(world).check(0)
    assert has_parted(world.store, world.topic.topic_id, 0) is None


def test_topic_and_archive_are_unreliable_until_they_were_compared() -> None:
    world = Archived().archived(10)
    world.store = MemoryStore(world.clock, _down)
    assert "not been compared yet" in (archives(world).problem(0) or "")


def _down(operation: str, key: str, writes: int) -> None:
    raise StorageUnavailable("down")


def test_a_store_that_is_away_for_a_while_changes_nothing_that_is_known() -> None:
    world = Archived().archived(10)
    seen = archives(world)
    assert (seen.problem(0), seen.archived_to(0)) == (None, 10)
    seen._objects = MemoryStore(world.clock, _down)
    world.clock.advance(120)
    assert (seen.problem(0), seen.archived_to(0)) == (None, 10)


def test_a_look_costs_one_list_and_a_small_read_and_comes_once_a_minute() -> None:
    world, calls = Archived().archived(10), list[str]()
    objects = MemoryStore(world.clock, lambda operation, key, writes: calls.append(operation))
    for info in world.store.list():
        objects.put_if_absent(info.key, world.store.get(info.key))
    world.store = objects
    seen = archives(world)
    seen.problem(0)
    calls.clear()
    seen.problem(0), seen.archived_to(0)
    assert calls == []
    world.clock.advance(61)
    seen.problem(0)
    assert calls == ["list", "get", "list"], "what was said about the history, and the pieces; their end is known"


def test_a_follower_tells_the_archive_that_people_spoke_also_about_what_it_does_not_keep() -> None:
    world, memory = Archived(), InMemory(1)
    seen = archives(world)
    follower = Follower(
        world.topic,
        memory.fresh(),
        memory,
        world.clock,
        Following(keep=lambda *_: False, tail=False, listener=seen.listen),
    ).start()
    seen.heard(0)
    world.append(3)
    follower.require_fresh(0, 0)
    assert not seen.spoken(0)
    world.topic.append(0, f"{OWNER}/0/order/{FactId.of(bytes(16))}", b"pause")
    follower.require_fresh(0, 0)
    assert seen.spoken(0)


# --- a new history, begun by a person ---------------------------------------------------------------------------------


def begun(world: Archived) -> Archived:
    """Begin the next history as `tierstate recover --begin-history --execute` does."""
    topic_id, at = world.topic.topic_id, world.clock.now_ms()
    begin_history(world.store, topic_id, newest_history(world.store, topic_id) + 1, at, "restored", ())
    history = newest_history(world.store, topic_id)
    world.identity = ViewIdentity("cluster", topic_id, 1, history=history)
    world.place = world.identity.place(0)
    return world


def test_the_next_history_is_archived_from_the_topics_current_records() -> None:
    world = begun(restored())
    run(world.archive())
    assert world.ranges == [(0, 15)]
    assert world.read() == world.said()
    assert list(verify_archive(world.store, TierPlace(world.topic.topic_id, 0, 1))) == []
    assert archived_topics(world.store) == [world.identity]
    view = MemoryView(decode_fact, 1)
    replay_archive(Shelf(world.store, archived_topics(world.store, 0)[0], 0), view)
    assert view.position(0) == 10, "what was archived of the lost history is still there"


def test_histories_are_kept_apart() -> None:
    world = begun(restored())
    run(world.archive())
    first = places(world.store, 0)
    assert [(place.history, len(list(place.pieces(world.store)))) for place in first] == [(0, 1)]
    moved = world.store.get(world.names[0].key)
    stranger = first[0].piece(10, 25)
    world.store.put_if_absent(stranger, moved)
    problems = [problem.problem for problem in verify_archive(world.store, TierPlace(world.topic.topic_id, 0))]
    assert any("under another's name" in problem for problem in problems)


def test_a_process_of_the_history_before_ends() -> None:
    world = restored()
    seen = archives(world)
    seen.problem(0)
    seen.check_over()
    begun(world)
    with pytest.raises(Fenced, match="restart this process"):
        seen.check_over()
    late = Archives(world.topic, world.store, ViewIdentity("cluster", world.topic.topic_id, 1), world.clock)
    assert late.problem(0) is not None, "it began before it could ask the store which history counts"
    assert archives(world).problem(0) is None


def test_a_history_begins_once() -> None:
    world = restored()
    left = [RemoteSegmentId("AAAAAAAAAAAAAAAAAAAAAg"), RemoteSegmentId("AAAAAAAAAAAAAAAAAAAAAQ")]
    begin_history(world.store, world.topic.topic_id, 1, TimestampMs(5), "why", left)
    with pytest.raises(InvalidRequest, match="begun already"):
        begin_history(world.store, world.topic.topic_id, 1, TimestampMs(6), "why", ())
    assert left_behind(world.store, world.topic.topic_id) == set(left)
    assert left_behind(world.store, world.topic.topic_id, 0) == frozenset()


def test_segments_of_every_lost_history_stay_lost_in_the_histories_after_it() -> None:
    world = Archived()
    first, second = RemoteSegmentId("AAAAAAAAAAAAAAAAAAAAAg"), RemoteSegmentId("AAAAAAAAAAAAAAAAAAAAAQ")
    begin_history(world.store, world.topic.topic_id, 1, TimestampMs(5), "why", [first])
    begin_history(world.store, world.topic.topic_id, 2, TimestampMs(6), "why", [second])
    assert left_behind(world.store, world.topic.topic_id, 1) == {first}
    assert left_behind(world.store, world.topic.topic_id, 2) == {first, second}


def test_a_topic_that_lost_only_its_last_record_has_parted() -> None:
    world = Archived().archived(10)
    anchor = world.topic.anchor_at(0, Position(9))
    assert anchor is not None
    assert parted(world.topic, 0, anchor) is None
    world.topic.restore(0, 9)
    assert parted(world.topic, 0, anchor) is not None


def test_an_archive_that_ends_with_compacted_records_parts_from_a_topic_that_lost_its_last_position() -> None:
    world = Archived().archived(10)
    world.topic.cleaned |= set(range(10, WINDOW))
    world.archived(WINDOW - 10)
    assert archives(world).problem(0) is None
    world.topic.restore(0, WINDOW - 1)
    assert f"ends at {WINDOW - 1}" in (archives(world).problem(0) or "")


def test_a_view_older_than_the_compaction_lag_is_not_continued_without_the_record_it_ended_with() -> None:
    world = Archived().archived(10)
    anchor = world.topic.anchor_at(0, Position(9))
    check_same(world.topic, 0, anchor, 0, TimestampMs(MIN_COMPACTION_LAG_MS + 1))
    world.topic.cleaned.add(9)
    check_same(world.topic, 0, anchor, 0, TimestampMs(MIN_COMPACTION_LAG_MS))
    with pytest.raises(PositionLost, match="compaction"):
        check_same(world.topic, 0, anchor, 0, TimestampMs(MIN_COMPACTION_LAG_MS + 1))


def test_the_parting_is_found_with_the_records_that_were_lost() -> None:
    world = restored()
    parting = find_parting(world.topic, world.shelf)
    assert (parting.common, parting.at) == (5, 6)
    assert [record.position for record in parting.lost] == [6, 7, 8, 9]
    assert [record.entry.key for record in parting.lost] == [key_of(number) for number in range(6, 10)]


def test_a_topic_that_only_ends_too_early_parts_at_its_end() -> None:
    world = restored(regrown=0)
    parting = find_parting(world.topic, world.shelf)
    assert (parting.common, parting.at, parting.end, parting.archived_to) == (5, 6, 6, 10)


def test_compacted_records_are_no_parting() -> None:
    world = Archived().archived(10)
    world.topic.cleaned |= {3, 8, 9}
    parting = find_parting(world.topic, world.shelf)
    assert (parting.common, parting.at, parting.lost) == (7, None, ())


# --- checkpoints and views --------------------------------------------------------------------------------------------


def test_a_checkpoint_of_a_lost_future_is_passed_over_for_one_of_the_common_past() -> None:
    world = World(lambda: MemoryView(decode_fact, PARTITIONS)).checkpoints(1, 2, 3)
    kept = [name.position for name in world.names]
    world.said.topic.restore(world.number, kept[0])
    world.clock.advance(60)
    world.speak(7, 8, 9)
    store = world.new_store()
    header = world.start(store)
    assert header is not None
    assert header.position == kept[0]
    assert [position for position, _ in reversed(world.refusals)] == kept[1:]
    assert "another history" in str(world.refusals[0][1])
    assert world.follow(store) == world.follow(world.new_store())


def test_a_view_on_disk_of_a_lost_future_is_rebuilt(tmp_path: Path) -> None:
    world = Archived()
    world.append(10)
    view = RocksView(tmp_path / "view", world.identity, decode_fact)
    memory = InMemory(1)
    Follower(world.topic, view, memory, world.clock, Following(tail=False)).start().require_fresh(0, 0)
    anchor = view.anchor(0)
    view.close()
    again = RocksView(tmp_path / "view", world.identity, decode_fact)
    assert again.anchor(0) == anchor
    world.topic.restore(0, 6)
    world.clock.advance(60)
    world.append(10, b"another")
    follower = Follower(world.topic, again, memory, world.clock, Following(tail=False)).start()
    follower.require_fresh(0, 0)
    assert live_set_digest(follower.store.entries(0)).hexdigest() == truth(world)


def truth(world: Archived) -> str:
    """Return the digest of a view that was replayed from nothing."""
    memory = InMemory(1)
    follower = Follower(world.topic, memory.fresh(), memory, world.clock, Following(tail=False)).start()
    follower.require_fresh(0, 0)
    return live_set_digest(follower.store.entries(0)).hexdigest()


def test_a_view_that_goes_on_while_its_topic_is_put_back_and_grows_past_it_is_rebuilt() -> None:
    world = Archived()
    world.append(10)
    memory = InMemory(1)
    follower = Follower(world.topic, memory.fresh(), memory, world.clock, Following(tail=False)).start()
    follower.require_fresh(0, 0)
    world.topic.restore(0, 6)
    world.append(10, b"another")
    world.clock.advance(31)
    follower.require_fresh(0, 0)
    assert live_set_digest(follower.store.entries(0)).hexdigest() == truth(world)


def test_a_view_of_the_format_before_anchors_is_read_on(tmp_path: Path) -> None:
    identity = ViewIdentity("cluster", "AAAAAAAAAAAAAAAAAAAAAg", 1)
    old = RocksView(tmp_path, ViewIdentity("cluster", "AAAAAAAAAAAAAAAAAAAAAg", 1, format=2), decode_fact)
    old.apply(0, [], Position(5), 3)
    old.close()
    view = RocksView(tmp_path, identity, decode_fact, create=False)
    assert (view.position(0), view.epoch(0), view.anchor(0)) == (5, 3, None)
    view.close()
