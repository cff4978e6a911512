"""The view of a real cluster's metadata and of the objects that Aiven's plugin wrote for it."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.kip405.golden_topic import GOLDEN, GoldenTopic
from tests.twins.manual_clock import ManualClock
from tierstate.fetch.open import Reading
from tierstate.kip405.records import SegmentUpdate, decode_record
from tierstate.kip405.tiers import KafkasRemoteTier
from tierstate.kip405.verify import KafkasVerifier, check_kafkas_view
from tierstate.kip405.view import MetadataView, MetadataWatch
from tierstate.state.errors import BrokerUnavailable, CorruptData, PositionLost
from tierstate.state.ids import TopicIdPartition
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs
from tierstate.state.routing import Isolation, LocalBounds
from tierstate.storage.directory import DirectoryStore

PREFIX = "ts/"
LEVEL = Isolation.READ_UNCOMMITTED


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bucket")
    with tarfile.open(GOLDEN / "t43.bucket.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def opened(topic: Any, bucket: Path, *prefixes: str, **options: Any) -> MetadataView:
    return MetadataView(topic, DirectoryStore(bucket), ManualClock(), prefixes or (PREFIX,), **options)


def without_custom_metadata(topic: GoldenTopic) -> GoldenTopic:
    """Return the topic as the plugin writes it by default."""

    def stripped(value: bytes) -> bytes:
        record = decode_record(value)
        if not isinstance(record, SegmentUpdate) or not record.custom:
            return value
        return value.replace(bytes([len(record.custom) + 1]) + record.custom, b"\x00")

    rows = [(number, stripped(value)) for number, values in topic.logs.items() for value in values]
    return GoldenTopic(rows)


class NoLocalTier:
    """A broker whose log begins where the remote tier ends, without an aborted transaction."""

    def __init__(self, view: MetadataView) -> None:
        self._view = view

    def bounds(self, topic: str, partition: TopicIdPartition) -> LocalBounds:
        view = self._view.partition(partition)
        end = Offset(view.coverage.owned[-1].offsets.end + 1)
        assert view.leader is not None
        return LocalBounds(end, Offset(end + 1), Offset(end + 1), view.leader.epoch, Offset(0))

    known_bounds = bounds

    def listed_aborted(self, topic: str, partition: TopicIdPartition, at: Offset) -> list[tuple[int, Offset]]:
        return []


def test_every_byte_that_the_plugin_wrote_is_read_and_right(bucket: Path) -> None:
    view = opened(GoldenTopic.of("t43"), bucket)
    local: Any = NoLocalTier(view)
    remote = KafkasRemoteTier(view, local, DirectoryStore(bucket), ManualClock(), Reading())
    ends = {}
    for place in view.partitions():
        partition = view.partition(place)
        verifier = KafkasVerifier(DirectoryStore(bucket), 3, view.partition, remote=remote)
        assert list(verifier.objects(partition)) == []
        bounds = local.bounds(partition.topic, place)
        assert list(check_kafkas_view(partition, bounds, TimestampMs(2**42))) == []
        ends[partition.topic] = (partition.coverage.owned[-1].offsets.end, verifier.checked.segments)
        last = partition.readable[-1]
        piece = remote.read(last, OffsetRange(last.offsets.end, last.offsets.end), 1, LEVEL)
        assert piece.next_offset == last.offsets.end + 1
    assert ends == {"plain": (2799, 10), "txn": (1342, 5)}


def test_only_the_metadata_partitions_that_are_needed_are_read(bucket: Path) -> None:
    whole = opened(GoldenTopic.of("t43"), bucket)
    places = {whole.tier_partition(place): place for place in whole.partitions()}
    topic = GoldenTopic.of("t43")
    view = opened(topic, bucket)
    number, place = next(iter(places.items()))
    assert view.partition(place).readable == whole.partition(place).readable
    assert {each for positions in topic.read for each in positions} == {number}
    assert view.partition(place) is view.partition(place), "made once until a record changes it"


def test_what_came_later_is_read_when_a_fresh_view_is_required(bucket: Path) -> None:
    topic = GoldenTopic.of("t43")
    kept = {number: log[:] for number, log in topic.logs.items()}
    topic.logs = {number: log[:5] for number, log in kept.items()}
    view = opened(topic, bucket)
    place = view.partitions()[0]
    before = len(view.partition(place).readable)
    topic.logs = kept
    assert len(view.partition(place).readable) == before
    view.require_fresh(view.tier_partition(place), 0.0)
    assert len(view.partition(place).readable) > before


def test_a_view_on_disk_reads_only_what_is_new(bucket: Path, tmp_path: Path) -> None:
    first = opened(GoldenTopic.of("t43"), bucket, folder=tmp_path / "view")
    expected = {place: first.partition(place).readable for place in first.partitions()}
    first.close()
    topic = GoldenTopic.of("t43")
    again = opened(topic, bucket, folder=tmp_path / "view")
    assert {place: again.partition(place).readable for place in again.partitions()} == expected
    assert topic.read == [], "nothing came since"
    again.close()


def test_a_metadata_partition_whose_position_is_lost_is_read_again(bucket: Path) -> None:
    topic = GoldenTopic.of("t43")
    view = opened(topic, bucket)
    expected = {place: view.partition(place).readable for place in view.partitions()}
    for log in topic.logs.values():
        log.append(log[-1])  # the newest record again: an update that changes nothing
    reader, lost = topic.reader, [True]

    def once_lost(positions: Any, epochs: Any) -> Any:
        if lost.pop() if lost else False:
            raise PositionLost("the log was truncated below the position")
        return reader(positions, epochs)

    view._close_reader()
    topic.reader = once_lost  # type: ignore[method-assign]
    for number in topic.logs:
        view.require_fresh(number, 0.0)
    assert {place: view.partition(place).readable for place in view.partitions()} == expected


def test_segments_without_custom_metadata_are_found_below_the_prefix_that_has_them(bucket: Path) -> None:
    view = opened(without_custom_metadata(GoldenTopic.of("t43")), bucket, "older/", PREFIX)
    for place in view.partitions():
        partition = view.partition(place)
        assert all(each.object_key.startswith(PREFIX) for each in partition.readable)
        assert partition.coverage.owned


def test_a_newest_segment_that_cannot_be_opened_is_named_and_stops_no_other_partition(bucket: Path) -> None:
    topic = GoldenTopic.of("t43")
    whole = opened(topic, bucket)
    hurt, other = whole.partitions()[:2]
    newest = whole.partition(hurt).readable[-1]
    manifest = bucket / f"{newest.object_key}.rsm-manifest"
    text = manifest.read_bytes()
    manifest.unlink()
    try:
        view = opened(topic, bucket)
        with pytest.raises(CorruptData) as error:
            view.partition(hurt)
        assert newest.object_key in str(error.value)
        assert view.partition(other).readable
    finally:
        manifest.write_bytes(text)


def test_a_watch_keeps_the_view_fresh_and_tells_why_it_cannot(bucket: Path) -> None:
    topic, clock = GoldenTopic.of("t43"), ManualClock()
    view = MetadataView(topic, DirectoryStore(bucket), clock, (PREFIX,))  # type: ignore[arg-type]
    watch = MetadataWatch(view, clock)
    assert watch.behind(60.0) == ["metadata partitions were not read to their end yet: 2"]
    from threading import Event

    watch.look(Event())
    assert watch.behind(60.0) == []
    clock.advance(100.0)

    def away(number: int) -> Any:
        raise BrokerUnavailable("no broker answers")

    topic.end = away  # type: ignore[method-assign]
    watch.look(Event())
    assert watch.behind(1_000.0) == ["the view makes no progress: no broker answers"]
    assert "100 s behind" in watch.behind(60.0)[1]
