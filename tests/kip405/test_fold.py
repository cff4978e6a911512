"""The states of segments, as Kafka's metadata topic tells them, in memory and on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tierstate.kip405.fold import Fold, Rows, open_rows
from tierstate.kip405.records import SegmentRecord, SegmentUpdate, decode_record
from tierstate.state.ids import TopicId
from tierstate.state.offsets import Position
from tierstate.state.segment import SegmentState
from tierstate.state.view import Entry

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.metadata.jsonl"))


def entries_of(path: Path, partition: int) -> list[Entry]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Entry("", Position(row["offset"]), bytes.fromhex(row["value"])) for row in rows if row["partition"] == partition
    ]


def folded(path: Path, rows: Rows, at_once: int = 7, topics: frozenset[TopicId] | None = None) -> Fold:
    fold = Fold(rows, topics)
    for partition in (0, 1):
        entries = entries_of(path, partition)
        for at in range(0, len(entries), at_once):
            some = entries[at : at + at_once]
            fold.apply(partition, some, Position(some[-1].position + 1), epoch=3)
    return fold


def states_of(fold: Fold) -> dict[str, SegmentState]:
    return {each.record.segment_id: each.state for place in fold.partitions() for each in fold.segments(place)}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name.partition(".")[0])
def test_a_segment_is_readable_after_its_copy_and_forgotten_after_its_deletion(path: Path) -> None:
    states = dict[str, SegmentState]()
    for partition in (0, 1):
        for entry in entries_of(path, partition):
            record = decode_record(entry.value or b"")
            if isinstance(record, SegmentRecord):
                assert record.segment_id not in states, "each attempt has an id of its own"
                states[record.segment_id] = SegmentState.COPY_SEGMENT_STARTED
            elif isinstance(record, SegmentUpdate):
                states[record.segment_id] = record.state
    expected = {key: state for key, state in states.items() if state is not SegmentState.DELETE_SEGMENT_FINISHED}
    assert states_of(folded(path, Rows())) == expected


def test_a_view_on_disk_goes_on_where_it_stopped_and_is_the_one_in_memory(tmp_path: Path) -> None:
    path = GOLDEN[1]
    whole = folded(path, Rows())
    for stop in (1, 50, 100):
        rows = open_rows(tmp_path / str(stop), "topic 2")
        fold = Fold(rows)
        some = entries_of(path, 0)[:stop]
        fold.apply(0, some, Position(some[-1].position + 1), epoch=1)
        fold.close()
        again = Fold(open_rows(tmp_path / str(stop), "topic 2"))
        assert (again.position(0), again.epoch(0), again.position(1)) == (some[-1].position + 1, 1, None)
        for partition in (0, 1):
            rest = [each for each in entries_of(path, partition) if each.position >= (again.position(partition) or 0)]
            again.apply(partition, rest, Position(10_000), epoch=1)
        assert states_of(again) == states_of(whole)
        again.close()


def test_a_view_of_another_topic_or_a_damaged_one_is_read_again(tmp_path: Path) -> None:
    fold = folded(GOLDEN[1], open_rows(tmp_path / "view", "topic 2"))
    assert fold.partitions()
    fold.close()
    other = Fold(open_rows(tmp_path / "view", "another topic 2"))
    assert (other.partitions(), other.position(0)) == ([], None)
    other.close()
    for file in (tmp_path / "view").glob("MANIFEST-*"):
        file.write_bytes(b"damaged")
    assert Fold(open_rows(tmp_path / "view", "another topic 2")).position(0) is None


def test_only_the_topics_that_are_wanted_are_kept() -> None:
    whole = folded(GOLDEN[1], Rows())
    (wanted,) = {each.topic_id for each in whole.partitions()[:1]}
    some = folded(GOLDEN[1], Rows(), topics=frozenset([wanted]))
    assert some.partitions() == [each for each in whole.partitions() if each.topic_id == wanted]
    assert some.partitions() != whole.partitions()


def test_a_bad_record_is_named_and_stops_no_other() -> None:
    entries, whole = entries_of(GOLDEN[1], 0), Fold(Rows())
    whole.apply(0, entries, Position(1000), epoch=0)
    hurt = Fold(Rows())
    bad = Entry("", Position(500), b"\x01\x07\x00 no such record")
    hurt.apply(0, [*entries[:5], bad, *entries[5:]], Position(1000), epoch=0)
    assert states_of(hurt) == states_of(whole)
    (problem,) = hurt.problems(0)
    assert "record 500 of metadata partition 0" in problem
    assert "api_key=7" in problem


def test_a_state_that_cannot_follow_is_named_and_changes_nothing() -> None:
    entries = entries_of(GOLDEN[0], 1)
    records = [(each, decode_record(each.value or b"")) for each in entries]
    updates = [(entry, each) for entry, each in records if isinstance(each, SegmentUpdate)]
    ended, its_end = next(each for each in updates if each[1].state is SegmentState.DELETE_SEGMENT_FINISHED)
    begun = next(
        entry for entry, each in records if isinstance(each, SegmentRecord) and each.segment_id == its_end.segment_id
    )
    fold = Fold(Rows())
    fold.apply(1, [begun, ended], Position(10_000), epoch=0)
    assert states_of(fold) == {its_end.segment_id: SegmentState.COPY_SEGMENT_STARTED}
    assert "from COPY_SEGMENT_STARTED to DELETE_SEGMENT_FINISHED" in fold.problems(1)[0]


@pytest.mark.parametrize("state", [0, 1, 2])
def test_a_partition_that_is_being_deleted_has_nothing_to_read(state: int) -> None:
    fold = folded(GOLDEN[1], Rows())
    place = fold.partitions()[0]
    name = fold.segments(place)[0].record.topic.encode()
    value = b"\x01\x02\x00" + bytes([len(name) + 1]) + name + place.topic_id.raw
    value += place.partition.to_bytes(4) + b"\x00" + bytes(4 + 8) + bytes([state]) + b"\x00"
    fold.apply(0, [Entry("", Position(999), value)], Position(1000), epoch=0)
    assert (place in fold.partitions()) == (state == 0)


def test_a_metadata_partition_that_lost_its_records_is_forgotten_alone() -> None:
    fold = folded(GOLDEN[1], Rows())
    before = fold.partitions()
    lost = before[:2]
    fold.forget(0, lost)
    assert fold.position(0) is None
    assert fold.position(1) is not None
    assert fold.partitions() == before[2:]
