"""Segments whose facts were erased, as the archive shows them; a doubtful archive condemns nothing."""

from __future__ import annotations

import pytest

from tests.leader.orphans import Late
from tests.leader.recovery import entries
from tests.leader.world import World
from tierstate.app.looking.archived_deletes import ASK_AGAIN_S, ArchivedDeletes
from tierstate.follower.archive import archive
from tierstate.follower.object_names import TierPlace
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.follower.view_identity import Shelf
from tierstate.leader.recover_scan import deleted_in
from tierstate.runtime.listener import ChoreFailed, Event
from tierstate.runtime.operation import run
from tierstate.schemas.codec import encode_fact
from tierstate.state.errors import StorageUnavailable
from tierstate.state.facts import DeleteReason, SegmentDeleteFinished, SegmentDeleteStarted
from tierstate.state.ids import RemoteSegmentId, TopicIdPartition
from tierstate.state.keys import key_of
from tierstate.state.offsets import TimestampMs

UNKNOWN = RemoteSegmentId.of(b"u" * 16)


class Archived:
    """A world two of whose segments are deleted and erased, archived with its whole history."""

    def __init__(self, world: World) -> None:
        self.late = Late(world)
        self.late.forget()
        self.world, self.gone = world, self.late.gone
        self.events: list[Event] = []
        self.reads = 0
        self.archive()
        self.ask = ArchivedDeletes(world.store, self.identity, world.clock, self.events.append)

    @property
    def identity(self) -> ViewIdentity:
        return ViewIdentity("memory", self.world.topic.topic_id, 1)

    def archive(self) -> None:
        world = self.world
        run(archive(world.topic, Shelf(world.store, self.identity, 0), TimestampMs(2**62), 0))

    def count_reads(self) -> None:
        def count(operation: str, key: str, writes: int) -> None:
            self.reads += operation == "get"

        self.world.faults = count


@pytest.fixture
def archived(world: World) -> Archived:
    return Archived(world)


def test_a_segment_whose_facts_were_all_erased_is_known_with_its_objects(archived: Archived) -> None:
    world, gone = archived.world, archived.gone
    assert gone.segment_id not in world.view().segments
    assert archived.ask(world.partition, [gone.segment_id, UNKNOWN]) == {gone.segment_id: gone.object_key}
    assert archived.events == []


def test_segments_that_are_readable_are_not_among_the_deleted(archived: Archived) -> None:
    readable = [segment.segment_id for segment in archived.world.view().readable]
    assert len(readable) == 3
    assert archived.ask(archived.world.partition, readable) == {}


def test_the_same_id_in_another_partition_is_not_deleted(archived: Archived) -> None:
    other = TopicIdPartition(archived.world.topic_id, 1)
    assert archived.ask(other, [archived.gone.segment_id]) == {}


def test_a_fenced_delete_condemns_nothing_in_the_archive_either(world: World) -> None:
    late = Late(world)
    kept = world.view().readable[0]
    zombie = late.session
    world.elect_here()
    world.process().begin()
    now = world.clock.now_ms()
    for fact in (
        SegmentDeleteStarted(kept, zombie.term, 101, DeleteReason.RETENTION_SIZE, now),
        SegmentDeleteFinished(kept, zombie.term, 102, now),
    ):
        world.topic.append(0, key_of(fact), encode_fact(fact))
    expected = [(world.partition, kept.segment_id), (world.partition, late.gone.segment_id)]
    assert deleted_in(entries(world), expected) == {(world.partition, late.gone.segment_id): late.gone.object_key}


def test_an_answer_is_not_read_again_for_a_week(archived: Archived) -> None:
    world, ids = archived.world, [archived.gone.segment_id, UNKNOWN]
    archived.count_reads()
    archived.ask(world.partition, ids)
    once = archived.reads
    assert once
    for _ in range(6):
        world.clock.advance(86_400)
        archived.ask(world.partition, ids)
    assert archived.reads == once
    world.clock.advance(ASK_AGAIN_S)
    archived.ask(world.partition, [archived.gone.segment_id])
    assert archived.reads == once
    archived.ask(world.partition, [UNKNOWN])
    assert archived.reads == 2 * once


def test_a_damaged_archive_condemns_nothing_and_is_reported(archived: Archived) -> None:
    world = archived.world
    place = TierPlace(archived.identity.topic_id, 0)
    (piece,) = [each.key for each in place.pieces(world.store)]
    data = bytearray(world.store.get(piece))
    data[len(data) // 2] ^= 1
    world.store.delete(piece)
    world.store.put_if_absent(piece, data)
    assert archived.ask(world.partition, [archived.gone.segment_id]) == {}
    assert [type(event) for event in archived.events] == [ChoreFailed]


def test_an_archive_that_cannot_be_read_now_is_asked_at_the_next_look(archived: Archived) -> None:
    world = archived.world

    def fail(operation: str, key: str, writes: int) -> None:
        if operation == "get":
            raise StorageUnavailable("no answer")

    world.faults = fail
    assert archived.ask(world.partition, [archived.gone.segment_id]) == {}
    world.faults = lambda operation, key, writes: None
    assert archived.gone.segment_id in archived.ask(world.partition, [archived.gone.segment_id])


def test_the_archive_of_another_tier_state_topic_is_not_asked(archived: Archived) -> None:
    world = archived.world
    other = ViewIdentity("memory", "BBBBBBBBBBBBBBBBBBBBBg", 1)
    ask = ArchivedDeletes(world.store, other, world.clock, archived.events.append)
    assert ask(world.partition, [archived.gone.segment_id]) == {}
    assert archived.events == []
