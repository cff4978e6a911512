"""Facts from a plain producer that name another partition's objects: none of these is served, deleted or moved."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from tests.leader.custody_world import Ward
from tests.leader.expiry import GRACE_MS, Expiry, say
from tests.leader.forger import ONLY_COPY, forged, keys_of, put_events, stolen
from tests.leader.orphans import GRACE_S, Late
from tests.leader.world import World
from tierstate.app.operating.sweeping import rows_of
from tierstate.leader.expirer import Quarantine, remove_objects, start_delete
from tierstate.leader.recover_scan import deleted_in
from tierstate.leader.sweeper import SweepFindings
from tierstate.rules.reasons import Reason
from tierstate.rules.sweep import failed_attempt, next_sweep
from tierstate.runtime.operation import run
from tierstate.state.errors import CorruptData, Fenced
from tierstate.state.facts import ContradictionSettled, DeleteReason, SegmentDeleteStarted
from tierstate.state.ids import FactId
from tierstate.state.offsets import Position
from tierstate.state.partition_view import SegmentMeaning
from tierstate.state.segment import RemoteSegment, SegmentState


def forge(world: World, *kinds: str) -> RemoteSegment:
    """Put the objects of ``events``, and facts of a producer about them in the name of the term in force."""
    events, view = put_events(world.store), world.view()
    assert view.term is not None
    segment = stolen(events, world.partition, world.name, view.term)
    for kind in kinds:
        say(world, forged(segment)[kind])
    return segment


def untouched(world: World, segment: RemoteSegment) -> None:
    assert {key: world.store.get(key) for key in keys_of(segment)} == dict.fromkeys(keys_of(segment), ONLY_COPY)
    assert {info.key for info in world.store.list()} >= keys_of(segment)
    assert segment.segment_id not in {each.segment_id for each in world.view().readable}


@pytest.fixture
def settled(world: World) -> Callable[[], None]:
    """Return a function that settles every contradiction as a person would, and lets it go on."""

    def settle() -> None:
        for number, text in enumerate(world.view().contradictions):
            new = FactId.of(number.to_bytes(16, "big"))
            say(world, ContradictionSettled(world.partition, new, text, False, "ops", world.clock.now_ms()))
        assert world.view().contradictions == ()
        world.all_fresh()

    return settle


CONDEMNED = ("copy-started", "copy-finished", "delete-started")
WAYS: Collection[tuple[str, ...]] = [
    ("copy-started", "copy-finished"),
    CONDEMNED,
    ("copy-started",),
    ("copy-finished",),
    ("delete-started",),
    ("copy-started", "delete-started"),
    ("delete-started", "delete-finished"),
]


@pytest.mark.parametrize("kinds", WAYS, ids=" ".join)
@pytest.mark.parametrize("is_settled", [False, True])
def test_an_agent_serves_and_deletes_nothing_of_another_partition(
    is_settled: bool, kinds: tuple[str, ...], world: World, settled: Callable[[], None]
) -> None:
    process = world.process()
    worker = process.work()
    segment = forge(world, *kinds)
    if is_settled:
        settled()
    for _ in range(3):
        process.view.require_fresh(0, 0)
        process.work(worker)
        world.clock.advance(GRACE_S)
        untouched(world, segment)
    texts = [fact.contradiction for fact in world.view().settled] if is_settled else world.view().contradictions
    assert any(segment.object_key in text for text in texts), "a person is told"
    assert not world.view().holds


def test_the_partition_stands_still_with_a_reason(world: World) -> None:
    process = world.process()
    worker = process.work()
    segment = forge(world, *CONDEMNED)
    for live in world.view().segments[segment.segment_id].facts:
        assert live.key not in world.view().fenced, "the forger speaks in the name of the ruling term"
    process.view.require_fresh(0, 0)
    process.work(worker)
    status = process.status()
    assert status.not_trimmed_reason is Reason.CONTRADICTION
    assert f"its object key is of another segment: {segment.object_key!r}" in str(status.not_trimmed)


def test_it_goes_on_once_the_forged_facts_are_erased(world: World) -> None:
    process = world.process()
    worker = process.work()
    begun = len(world.topic.keys())
    segment = forge(world, *CONDEMNED)
    process.view.require_fresh(0, 0)
    process.work(worker)
    forged_keys = [key for key in world.topic.keys()[begun:] if str(segment.segment_id) in key]
    assert len(forged_keys) == len(CONDEMNED)
    for key in forged_keys:
        world.topic.append(0, key, None)
    world.roll()
    process.view.require_fresh(0, 0)
    process.work(worker)
    assert not world.view().holds
    assert world.view().coverage.prefix_end(0) == world.bases[-1] - 1, "what was rolled since is copied"
    assert world.local_start() == world.bases[-1], "and trimmed"
    assert keys_of(segment) <= world.objects()


def meant(world: World, segment: RemoteSegment) -> SegmentMeaning:
    return world.view().segments[segment.segment_id]


def test_a_settled_contradiction_still_removes_nothing(world: World, settled: Callable[[], None]) -> None:
    process = world.process()
    session = process.copy_all()
    segment = forge(world, *CONDEMNED)
    settled()
    expiry = Expiry(process, session)
    assert expiry.next_act() is None, "the rule says no"
    condemned = meant(world, segment)
    assert condemned.state is SegmentState.DELETE_SEGMENT_STARTED
    with pytest.raises(Fenced, match="its object key is of another segment"):
        run(remove_objects(session, world.store, condemned, GRACE_MS, process.events.append))
    untouched(world, segment)


@pytest.mark.parametrize("kinds", [("copy-started",), ("copy-finished",)], ids=" ".join)
def test_a_settled_contradiction_is_still_not_condemned(
    kinds: tuple[str, ...], world: World, settled: Callable[[], None]
) -> None:
    process = world.process()
    session = process.copy_all()
    segment = forge(world, *kinds)
    settled()
    view, live = session.view(max_age=0), meant(world, segment)
    assert failed_attempt(view, session.term, session.bounds()) is None
    sweep = next_sweep(view, session.bounds(), {segment.segment_id: -GRACE_S}, 0.0, GRACE_S)
    assert isinstance(sweep, str)
    reason = DeleteReason.FAILED_ATTEMPT if live.state is SegmentState.COPY_SEGMENT_STARTED else DeleteReason.ABANDONED
    with pytest.raises(CorruptData, match="names objects of another segment"):
        run(start_delete(session, live, reason, process.events.append))
    assert meant(world, segment).deleting is None


def test_a_quarantine_moves_nothing_of_another_partition(world: World) -> None:
    world.process().copy_all()
    segment = forge(world)
    with pytest.raises(CorruptData, match="names objects of another segment"):
        Quarantine("aside/").keep_segment(world.store, segment)
    assert not list(world.store.list("aside/"))


@pytest.mark.parametrize("key", [None, "no-name-at-all"])
def test_a_sweep_looks_into_no_folder_of_another_partition(key: str | None, world: World) -> None:
    late = Late(world)
    segment = forge(world)
    for fact in forged(segment if key is None else replace(segment, object_key=key)).values():
        say(world, fact)
    first_look = late.watch.look(world.view())
    assert {each.key for each in first_look.listed}.isdisjoint(keys_of(segment))
    late.world.clock.advance(GRACE_S)
    assert not late.watch.look(world.view()).condemned
    untouched(world, segment)


def test_an_archived_delete_condemns_no_objects_but_its_own(world: World) -> None:
    world.process().copy_all()
    segment = forge(world, *CONDEMNED, "delete-finished")
    archived = [entry for batch in world.topic.reader({0: Position(0)}).poll(0) for entry in batch.entries]
    assert deleted_in(archived, [(world.partition, segment.segment_id)]) == {}


@pytest.mark.parametrize("kinds", [("copy-started", "copy-finished"), CONDEMNED], ids=" ".join)
@pytest.mark.parametrize("is_settled", [False, True])
def test_the_custodian_of_a_gone_topic_deletes_nothing_of_another(
    is_settled: bool, kinds: tuple[str, ...], world: World, settled: Callable[[], None]
) -> None:
    world.process().copy_all()
    segment = forge(world, *kinds)
    if is_settled:
        settled()
    world.broker.delete_topic(world.name)
    Ward(world).end()
    untouched(world, segment)
    deletes = [live.fact for live in meant(world, segment).facts if isinstance(live.fact, SegmentDeleteStarted)]
    assert all(fact.reason is DeleteReason.RETENTION_TIME for fact in deletes), "it condemned nothing either"


def test_a_custodian_says_why_it_waits(world: World, settled: Callable[[], None]) -> None:
    world.process().copy_all()
    segment = forge(world, *CONDEMNED)
    settled()
    world.broker.delete_topic(world.name)
    ward = Ward(world)
    ward.end()
    assert segment.object_key in ward.custodian.reasons[world.partition]


def test_a_sweep_by_hand_promises_no_sweep_of_it(world: World) -> None:
    world.process().copy_all()
    segment = forge(world, "copy-started", "copy-finished")
    [row] = rows_of(world.name, SweepFindings(world.view(), (), (), ()), None, ())
    assert row.key == segment.object_key
    assert "its object key is of another segment" in row.why
