"""`tierstate adopt`: another writer's segments are copied, proven and recorded, or refused with a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.app.adopting import Adopting
from tests.leader.world import World
from tests.operations import run_until
from tierstate.rules.adoption import contradicted
from tierstate.rules.recovery import Verdict
from tierstate.schemas.codec import encode_fact
from tierstate.state.facts import DeleteReason, OperatorOrder, OrderKind, SegmentDeleteStarted
from tierstate.state.ids import FactId, RemoteSegmentId
from tierstate.state.keys import key_of
from tierstate.state.object_keys import ObjectKeys, ObjectKind, object_key
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs
from tierstate.state.segment import RemoteSegment
from tierstate.storage.segment.chunks import ChunkIndex
from tierstate.storage.segment.manifest_json import format_manifest

New = Callable[..., Adopting]


@pytest.fixture
def adopting(tmp_path: Path) -> Iterator[New]:
    worlds: list[World] = []

    def make(case: str = "none", *, aiven: bool = True) -> Adopting:
        worlds.append(World(tmp_path / str(len(worlds)), case, {"local.retention.bytes": "0"}))
        worlds[-1].process().copy_all()
        made = Adopting(worlds[-1])
        return made.as_aiven() if aiven else made

    yield make
    for world in worlds:
        world.close()


def described(segment: RemoteSegment) -> list[object]:
    names = ("partition", "topic", "segment_id", "offsets", "last_record_offset", "record_count", "leader_epochs")
    return [getattr(segment, name) for name in (*names, "max_timestamp", "log_sha256", "log_crc32c", "aborted")]


@pytest.mark.parametrize("aiven", [True, False], ids=["aiven", "tierstate"])
@pytest.mark.parametrize("case", ["none", "epochs", "gzip", "transactions"])
def test_what_is_adopted_is_described_as_the_agent_that_read_the_disk_did(
    case: str, aiven: bool, adopting: New
) -> None:
    new = adopting(case, aiven=aiven)
    outcome, view, segments = new.adopt(), new.view(), new.segments
    if case == "transactions" and aiven:  # a transaction ends behind the last segment
        assert list(outcome.problems) == [segments[-1].object_key]
        segments = segments[:-1]
    else:
        assert not outcome.problems
    assert [described(each) for each in view.readable] == [described(each) for each in segments]
    assert [new.log(each) for each in view.readable] == new.logs()[: len(segments)]
    assert view.log_start == segments[0].offsets.start
    assert not view.contradictions
    assert not view.coverage.gaps(OffsetRange(view.log_start, segments[-1].offsets.end))


@pytest.mark.parametrize("aiven", [True, False], ids=["aiven", "tierstate"])
def test_an_adoption_that_dies_before_any_step_goes_on_to_the_same_result(aiven: bool, adopting: New) -> None:
    whole = adopting(aiven=aiven)
    steps = whole.process(lambda act: run_until(act, 10_000))
    readable = [described(each) for each in whole.view().readable]
    assert len(steps) == 3 + 5 * len(whole.segments)
    for step in range(len(steps)):
        new = whole.fresh()
        new.process(partial(run_until, step=step))
        assert not new.view().readable or step > steps.index("append copy-finished")
        assert not new.adopt(seed=step + 2).problems
        assert [described(each) for each in new.view().readable] == readable
        assert [new.log(each) for each in new.view().readable] == new.logs()
        assert new.objects() == whole.objects()
        keys = new.keys()
        assert new.process(lambda act: run_until(act, 10_000), seed=1_000) == []  # nothing is left to do
        assert new.keys() == keys


def test_an_adoption_that_dies_twice_goes_on_to_the_same_result(adopting: New) -> None:
    """The second process began a term: the copy that the first one began is abandoned since then."""
    new = adopting()
    steps = new.fresh().process(lambda act: run_until(act, 10_000))
    new.process(partial(run_until, step=len(steps) - 1))
    assert new.process(partial(run_until, step=1), seed=2) == ["append leader-elected"]
    assert not new.adopt(seed=3).problems
    assert [new.log(each) for each in new.view().readable] == new.logs()


@pytest.mark.parametrize("kind", [ObjectKind.LOG, ObjectKind.MANIFEST])
@pytest.mark.parametrize("aiven", [True, False], ids=["aiven", "tierstate"])
def test_a_damaged_segment_is_named_and_nothing_behind_it_is_believed(
    kind: ObjectKind, aiven: bool, adopting: New
) -> None:
    new = adopting(aiven=aiven)
    new.flip(new.segments[2], kind, 30 if kind is ObjectKind.MANIFEST else 200)
    outcome = new.adopt()
    named = [*outcome.problems, *(each.key for each in new.damaged)]
    assert [each.startswith(new.segments[2].object_key) for each in named] == [True]
    assert [each.offsets for each in new.view().readable] == [each.offsets for each in new.segments[:2]]
    assert [each.segment.offsets for each in outcome.proposal.behind] == [each.offsets for each in new.segments[3:]]
    assert {key.rpartition(".")[0] for key in new.objects()} == {each.object_key for each in new.view().readable}


def test_what_lies_behind_a_hole_is_adopted_if_a_person_asks_for_it(adopting: New) -> None:
    new = adopting()
    new.flip(new.segments[2], ObjectKind.LOG, 200)
    new.past_holes = True
    outcome = new.adopt()
    assert list(outcome.problems) == [new.segments[2].object_key]
    assert outcome.proposal.plan.gaps == (new.segments[2].offsets,)
    kept = [each.offsets for at, each in enumerate(new.segments) if at != 2]
    assert [each.offsets for each in new.view().readable] == kept


def test_a_segment_that_is_repaired_is_adopted_by_the_next_run(adopting: New) -> None:
    new = adopting()
    new.flip(new.segments[2], ObjectKind.LOG, 200)
    new.adopt()
    new.flip(new.segments[2], ObjectKind.LOG, 200)
    assert not new.adopt(seed=7).problems
    assert [new.log(each) for each in new.view().readable] == new.logs()


def test_a_log_that_ends_early_is_refused_although_its_manifest_agrees(adopting: New) -> None:
    """Every batch is right, and the manifest has the sizes of what is there: only the end offset tells."""
    new = adopting()
    segment, reader = new.segments[1], new.world.batches(new.segments[1].offsets.start)
    end = reader[-1].position
    log = new.world.file(segment.offsets.start).read_bytes()[:end]
    manifest = replace(new.manifest(segment), compression=False, chunks=ChunkIndex.of_variable(end, end, (end,)))
    new.put(segment, ObjectKind.LOG, log)
    new.put(segment, ObjectKind.MANIFEST, format_manifest(manifest))
    assert "does not reach the end" in new.adopt().problems[segment.object_key]
    assert [each.offsets for each in new.view().readable] == [new.segments[0].offsets]
    assert {key.rpartition(".")[0] for key in new.objects()} == {each.object_key for each in new.view().readable}


def twin_of(new: Adopting, segment: RemoteSegment, log: bytes) -> None:
    """Put a second copy of a segment, under another segment id, as a retried copy leaves one."""
    twin_id = RemoteSegmentId.of(b"twin" * 4)
    key = ObjectKeys().base_key(segment.topic, segment.partition.topic_id, 0, segment.offsets.start, twin_id)
    twin, manifest = replace(segment, object_key=key), new.manifest(segment)
    size = len(log)
    manifest = replace(
        manifest,
        compression=False,
        chunks=ChunkIndex.of_variable(size, size, (size,)),
        metadata=replace(manifest.metadata, segment_id=twin_id),
    )
    indexes = new.source.get(object_key(segment.object_key, ObjectKind.INDEXES))
    for kind, data in zip(ObjectKind, (log, indexes, format_manifest(manifest)), strict=True):
        new.put(twin, kind, data)


def test_a_second_copy_with_the_same_bytes_changes_nothing(adopting: New) -> None:
    new = adopting()
    twin_of(new, new.segments[1], new.logs()[1])
    outcome = new.adopt()
    assert not outcome.problems
    assert [new.log(each) for each in new.view().readable] == new.logs()


def test_a_second_copy_with_other_bytes_makes_both_unbelievable(adopting: New) -> None:
    new = adopting()
    first = new.world.batches(new.segments[1].offsets.start)[0]
    log = bytearray(new.logs()[1])
    twin_of(new, new.segments[1], bytes(log[first.position + first.size_bytes :]))
    problems = new.adopt().problems
    assert "other bytes for the same offsets" in "".join(problems.values())
    assert [each.offsets for each in new.view().readable] == [new.segments[0].offsets]


def test_a_transaction_that_nothing_ends_keeps_its_segment_out(adopting: New) -> None:
    new = adopting("opentxn")
    outcome = new.adopt()
    assert outcome.problems
    assert "how a transaction ended" in next(iter(outcome.problems.values()))


@pytest.mark.parametrize("aiven", [True, False], ids=["aiven", "tierstate"])
def test_objects_of_another_writer_at_the_place_of_the_copy_stay_untouched(aiven: bool, adopting: New) -> None:
    new = adopting(aiven=aiven)
    new.prefix = ""
    segment = new.segments[0]
    for kind in ObjectKind:
        new.store.put_if_absent(
            object_key(segment.object_key, kind), new.source.get(object_key(segment.object_key, kind))
        )
    before = new.objects()
    assert "other objects stand" in new.adopt().problems[segment.object_key]
    assert new.objects() == before
    assert not new.view().readable


def test_a_deleted_segment_is_not_adopted_again(adopting: New) -> None:
    new = adopting()
    new.adopt()
    view = new.view()
    assert view.term is not None
    fact = SegmentDeleteStarted(view.readable[0], view.term, 900, DeleteReason.OPERATOR_ORDER, new.world.clock.now_ms())
    new.topic.append(0, key_of(fact), encode_fact(fact))
    keys = new.keys()
    assert not new.adopt(seed=5).proposal.new
    assert new.keys() == keys


def test_a_history_that_the_leaders_log_leaves_is_refused(adopting: New) -> None:
    proposal = adopting("epochs").planned()
    end = proposal.new[-1].segment.offsets.end
    assert contradicted(proposal, Offset(end + 1)) == proposal
    assert contradicted(proposal, Offset(0)) == proposal  # the leader has none of these epochs: nothing is proven
    refused = contradicted(proposal, Offset(end))
    assert refused.plan.refused is not None
    assert not refused.new


def test_what_lies_below_the_log_start_of_the_facts_is_left_out(adopting: New) -> None:
    new = adopting()
    hidden = [each for each in new.segments[:2]]
    manifests = [new.source.get(object_key(each.object_key, ObjectKind.MANIFEST)) for each in hidden]
    for each in hidden:
        new.source.delete(object_key(each.object_key, ObjectKind.MANIFEST))
    new.adopt()
    keys = new.keys()
    for each, data in zip(hidden, manifests, strict=True):
        new.put(each, ObjectKind.MANIFEST, data)
    proposal = new.adopt(seed=5).proposal
    assert [each.segment.offsets for each in proposal.plan.of(Verdict.UNPROVEN)] == [each.offsets for each in hidden]
    assert new.keys() == keys


def test_an_order_of_the_lost_cluster_comes_along_once_and_does_not_come_back(adopting: New) -> None:
    whole = adopting(aiven=False)
    order_id = FactId.of(b"order" + bytes(11))
    order = OperatorOrder(whole.world.partition, order_id, OrderKind.PAUSE, None, False, "a", TimestampMs(1))
    whole.standing = (order,)
    for step in range(len(whole.fresh().process(lambda act: run_until(act, 10_000)))):
        new = whole.fresh()
        new.process(partial(run_until, step=step))
        new.adopt()
        assert [key == key_of(order) for key in new.keys()].count(True) == 1
    new, last = whole.fresh(), object_key(whole.segments[-1].object_key, ObjectKind.MANIFEST)
    manifest = new.source.get(last)
    new.source.delete(last)
    new.adopt()
    new.topic.append(0, key_of(order), None)  # it was resumed, and the orders were erased
    new.source.put_if_absent(last, manifest)
    assert new.adopt(seed=8).proposal.new
    assert [key == key_of(order) for key in new.keys()].count(True) == 2
