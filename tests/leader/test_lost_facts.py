"""The end of the tier-state topic is lost: the lost facts about the bucket's segments are found, kept, and added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.later_release import later_kind
from tests.leader.recovery import history, plan
from tests.leader.world import Process, World
from tests.operations import run_until
from tests.twins.counting_ids import CountingIds
from tierstate.follower.follower import Follower
from tierstate.follower.open import open_view
from tierstate.leader.copier import copy_segment
from tierstate.leader.lost_facts import LOOK_EVERY_S, LostFactsTools, LostFactsWatch, look_for_lost_facts
from tierstate.leader.recover import RecoverTools, add_lost_facts
from tierstate.rules.lost_facts import LostFacts, holes
from tierstate.rules.reasons import Reason
from tierstate.rules.trim import cut_elsewhere
from tierstate.runtime.listener import OperationFailed
from tierstate.runtime.operation import run
from tierstate.schemas.codec import RELEASE
from tierstate.state.errors import Fenced, StorageUnavailable
from tierstate.state.facts import LiveFact, SegmentCopyFinished, SegmentCopyStarted, SegmentDeleteStarted
from tierstate.state.ids import RemoteSegmentId
from tierstate.state.object_keys import ObjectKeys, ObjectKind, object_key
from tierstate.state.offsets import Offset
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import SegmentState

DAY_S = 86_400.0


def tools(world: World, *, deleted: tuple[RemoteSegmentId, ...] = ()) -> LostFactsTools:
    return LostFactsTools(world.store, ObjectKeys(), "memory", lambda partition, ids: dict.fromkeys(deleted, "x"))


def worker(process: Process) -> Iterator[None]:
    """Work as an agent does, with its looks, until nothing is left."""
    world = process.world
    lost = LostFactsWatch(process.context, world.partition, world.name, tools(world), process.events.append)
    made = process.worker(lost=lost)
    while True:
        process.work(made)
        yield


def trimmed(world: World) -> PartitionView:
    """Copy everything and trim, so that the broker has only the active segment."""
    world.process().work()
    world.retire()
    assert world.local_start() > 0
    return world.view()


def cut_at(world: World, kind: type, number: int) -> None:
    """Let the topic end before the ``number``-th fact of this kind."""
    positions = [live.position for live in facts(world) if isinstance(live.fact, kind)]
    world.topic.restore(0, positions[number])


def facts(world: World) -> list[LiveFact]:
    follower = open_view(world.topic, "memory", world.clock)
    try:
        follower.require_fresh(0, 0)
        return follower.facts(world.partition)
    finally:
        follower.close()


def look(world: World, **options: tuple[RemoteSegmentId, ...]) -> LostFacts:
    return look_for_lost_facts(
        tools(world, **options), world.name, world.view(), world.view, Offset(world.local_start())
    )


def recover(world: World) -> PartitionView:
    follower: Follower = open_view(world.topic, "memory", world.clock)
    try:
        return run(add_lost_facts(look(world), RecoverTools(world.topic, follower, world.clock, CountingIds(88))))
    finally:
        follower.close()


def agents_keep_everything(world: World) -> Process:
    """An agent that starts now looks, and neither deletes nor trims, even days later; it reports why."""
    before, start = world.objects(), world.local_start()
    process = world.process()
    turns = worker(process)
    for _ in range(4):
        next(turns)
        world.clock.advance(DAY_S)
    assert before <= world.objects()
    assert world.local_start() == start
    return process


@pytest.mark.parametrize(
    ("kind", "number"),
    [(SegmentCopyStarted, 1), (SegmentCopyStarted, -1), (SegmentCopyFinished, 0), (SegmentCopyFinished, -1)],
    ids=["unnamed", "last unnamed", "unfinished", "last unfinished"],
)
def test_a_lost_tail_is_found_kept_and_added_again(kind: type, number: int, world: World) -> None:
    whole = trimmed(world)
    cut_at(world, kind, number)
    missing = len(whole.readable) - len(world.view().readable)
    assert missing
    world.elect_here()
    process = agents_keep_everything(world)
    status = process.status()
    for reason in (status.not_trimmed_reason, status.not_expired_reason):
        assert reason is Reason.TIER_STATE_LOST
    assert f"tierstate recover {world.name}:0" in (status.facts_lost or "")
    assert len(look(world).segments) == missing
    recovered = recover(world)
    assert {each.segment_id for each in recovered.readable} >= {each.segment_id for each in whole.readable}
    assert not holes(recovered, Offset(world.local_start()))
    assert cut_elsewhere(recovered, world.name, Offset(world.local_start())) is None
    assert not look(world).segments


def test_an_agent_begins_its_own_term_after_a_recovery_and_goes_on(world: World) -> None:
    trimmed(world)
    cut_at(world, SegmentCopyFinished, -1)
    world.elect_here()
    follows = agents_keep_everything(world).view
    recovered = recover(world)
    follows.require_fresh(0, 0)
    assert follows.second_values(world.partition) == [], "what a recovery says again is no alarm"
    process = world.process()
    next(worker(process))
    view = world.check_promises()
    assert view.term is not None
    assert recovered.term is not None
    assert view.term.epoch == recovered.term.epoch
    assert view.leader is not None
    assert view.leader.broker_id == 1
    assert process.status().facts_lost is None
    assert process.view.second_values(world.partition) == []


@pytest.mark.parametrize("ignorable", [True, False])
def test_a_later_fact_keeps_lost_facts_from_being_added_unless_it_may_be_ignored(ignorable: bool, world: World) -> None:
    readable = trimmed(world).readable
    cut_at(world, SegmentCopyFinished, -1)
    key, value = later_kind(world.partition, 1, RELEASE if ignorable else None)
    world.topic.append(0, key, value)
    if not ignorable:
        assert "later wrote it" in (look(world).plan.refused or "")
        return
    assert {each.segment_id for each in recover(world).readable} == {each.segment_id for each in readable}
    assert key in {live.key for live in facts(world)}, "it stays where it is"


def test_a_second_recovery_goes_on_where_the_first_was_interrupted(world: World) -> None:
    whole = trimmed(world)
    cut_at(world, SegmentCopyStarted, 1)
    for steps in range(1, 9):
        follower = open_view(world.topic, "memory", world.clock)
        act = add_lost_facts(look(world), RecoverTools(world.topic, follower, world.clock, CountingIds(100 + steps)))
        run_until(act, steps)
        follower.close()
    recovered = recover(world)
    assert {each.segment_id for each in recovered.readable} == {each.segment_id for each in whole.readable}
    assert not recovered.contradictions


def test_a_recovery_while_an_agent_begins_a_term_is_refused(world: World) -> None:
    trimmed(world)
    cut_at(world, SegmentCopyStarted, 1)
    world.elect_here()
    follower = open_view(world.topic, "memory", world.clock)
    act = add_lost_facts(look(world), RecoverTools(world.topic, follower, world.clock, CountingIds(99)))
    assert next(act) == "append leader-elected"
    next(act)
    world.process().begin()
    with pytest.raises(Fenced, match="another term"):
        run(act)
    follower.close()


def test_a_copy_that_died_before_it_was_finished_is_no_lost_fact(world: World) -> None:
    process = world.process()
    session = process.begin()
    process.copy_next(session)
    run_until(copy_segment(session, process.candidate(session), process.tools), 4)  # its manifest is there
    assert not look(world).segments
    world.elect_here()
    again = world.process()
    turns = worker(again)
    next(turns)
    world.clock.advance(2 * DAY_S)
    next(turns)
    assert again.status().facts_lost is None
    assert len(world.states()) == len(world.view().readable) + 1, "what nobody finished is condemned"
    assert SegmentDeleteStarted in {type(live.fact) for live in facts(world)}


def test_a_segment_deleted_by_the_archive_is_no_lost_fact(world: World) -> None:
    whole = trimmed(world)
    cut_at(world, SegmentCopyStarted, -1)
    assert look(world).segments
    assert not look(world, deleted=(whole.readable[-1].segment_id,)).segments


def test_a_segment_of_which_an_object_is_not_there_is_no_lost_fact(world: World) -> None:
    whole = trimmed(world)
    cut_at(world, SegmentCopyStarted, -1)
    world.store.delete(object_key(whole.readable[-1].object_key, ObjectKind.INDEXES))
    assert not look(world).segments


def test_records_still_on_the_broker_are_copied_again_and_not_lost(world: World) -> None:
    process = world.process()
    process.copy_all()
    cut_at(world, SegmentCopyStarted, 1)
    world.elect_here()
    objects = world.objects()
    again = world.process()
    next(worker(again))
    assert again.status().facts_lost is None
    assert objects <= world.objects()
    assert world.local_start() == world.bases[-1]


def test_an_agent_looks_at_its_start_once_an_hour_and_when_offsets_come_to_be_in_no_tier(world: World) -> None:
    trimmed(world)
    requests: list[str] = []
    process = world.process()
    process.begin()
    made = LostFactsWatch(process.context, world.partition, world.name, tools(world), process.events.append)
    world.faults = lambda operation, key, writes: requests.append(operation)
    start = Offset(world.local_start())
    for hours in range(1, 26):
        for _ in range(12):
            assert made.why(world.view(), start) is None
            world.clock.advance(LOOK_EVERY_S / 12)
        assert hours <= requests.count("list") <= hours + 1
    before = requests.count("list")
    cut_at(world, SegmentCopyStarted, 1)
    assert made.why(world.view(), start) is not None
    assert requests.count("list") == before + 1
    assert made.why(world.view(), start) is not None
    assert requests.count("list") == before + 1, "once"


def test_while_the_store_does_not_answer_nothing_is_deleted_where_offsets_are_in_no_tier(world: World) -> None:
    trimmed(world)
    cut_at(world, SegmentCopyStarted, 1)
    process = world.process()
    made = LostFactsWatch(process.context, world.partition, world.name, tools(world), process.events.append)

    def away(operation: str, key: str, writes: int) -> None:
        raise StorageUnavailable("no answer")

    world.faults = away
    reason = made.why(world.view(), Offset(world.local_start()))
    assert reason is not None
    assert reason.kind is Reason.TIER_STATE_LOST
    assert [event.operation for event in process.events if isinstance(event, OperationFailed)] == [
        "look for lost facts"
    ]


def test_a_manifest_that_no_recovery_would_believe_keeps_the_broker_s_copy(world: World) -> None:
    process = world.process()
    process.copy_all()
    segment = world.view().readable[1]
    key = object_key(segment.object_key, ObjectKind.MANIFEST)
    data = bytearray(world.store.get(key))
    at = data.index(b'"tierstate"')
    data[at + 2] ^= 1  # as long as before
    world.store.delete(key)
    world.store.put_if_absent(key, bytes(data))
    process.work()
    assert world.local_start() == segment.offsets.start, "what lies before it goes"
    assert "no recovery would restore" in (process.status().last_error or "")


def test_a_recovery_of_the_whole_topic_restores_what_the_archive_calls_abandoned_without_its_end(world: World) -> None:
    whole = trimmed(world)
    cut_at(world, SegmentCopyFinished, -1)
    world.elect_here()
    agents_keep_everything(world)
    lost = whole.readable[-1].segment_id
    archived = history(world)
    assert archived[world.partition].states[lost] is SegmentState.ABANDONED
    recovery_plan = plan(world, archived, world.local_start())
    assert lost in {each.segment.segment_id for each in recovery_plan.restored}
    assert not recovery_plan.gaps


def test_a_segment_that_left_the_bucket_is_looked_for_at_the_start_and_once_a_heartbeat_is_lost(world: World) -> None:
    newest = trimmed(world).readable[-1]
    process, missed, heartbeats_lost = world.process(), list[str](), [0]
    used = replace(tools(world), heartbeats_lost=lambda: heartbeats_lost[0])
    watch = LostFactsWatch(
        process.context, world.partition, world.name, used, process.events.append, lambda: missed.append("missed")
    )
    start = Offset(world.local_start())
    assert watch.why(world.view(), start) is None
    assert missed == []
    for kind in ObjectKind:
        world.store.delete(object_key(newest.object_key, kind))
    assert watch.why(world.view(), start) is None
    assert missed == [], "looked for an hour later, or"
    heartbeats_lost[0] += 1
    for _ in range(2):
        assert watch.why(world.view(), start) is None
    assert missed == ["missed"]
    watch.rest()
    watch.why(world.view(), start)
    assert missed == ["missed"] * 2, "at the first look after it leads again"
