"""The gold run: one broker, the same batches, one topic tiered by Kafka itself (KIP-405) and one by tierstate.

Every segment is compared: bytes of the log, first and last offset, leader epochs, largest timestamp, indexes; and the
readable records, before retention and after it is shortened. The allowed differences:

- the two logs on the broker differ in the times of transaction markers, which the broker writes to each partition by
  itself: those bytes are blanked before logs are compared;
- ids and names of objects: both are random; ours are those of Aiven's plugin, which `tests/storage` proves;
- deletion: Kafka deletes objects at once, ours waits a grace for readers (`expire.grace`, none here);
- DeleteRecords by an operator: Kafka deletes remote data with it, ours never (`docs/decisions/` and the last test):
  the broker's log start is also what our own trims move, so it never speaks for the remote tier.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.native_tiers import kafkas_own_tiers
from tests.scenarios.house import House, eventually
from tests.scenarios.kip405 import DELETED, FINISHED, KafkaSegment, kafka_segments, read_from_beginning, stored
from tests.scenarios.workload import Workload, max_timestamp, without_marker_times
from tierstate.log.transaction_index import parse_producer_snapshot
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.segment import RemoteSegment
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.segment.manifest import IndexKind
from tierstate.storage.segment.reader import SegmentReader

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DAY_MS = 86_400_000
CONFIG = {"internal_segment_bytes": "65536", "segment_ms": str(10**15), "local_retention_bytes": "1"}
ISOLATIONS = ("read_committed", "read_uncommitted")
SAME_FILES = {
    IndexKind.OFFSET: ".index",
    IndexKind.LEADER_EPOCHS: ".leader_epoch_checkpoint",
    IndexKind.TRANSACTION: ".txnindex",
}


@dataclass(frozen=True)
class Pair:
    """One segment by each of the two copies; ``local`` is ours as the broker had it."""

    kafkas: KafkaSegment
    kafkas_log: bytes
    ours: RemoteSegment
    our_log: bytes
    reader: SegmentReader
    local: bytes


@dataclass
class Gold:
    """Both topics, copied and trimmed."""

    house: House
    kafkas: str
    ours: str
    remote: Path
    local: dict[int, bytes]

    def finished(self) -> list[KafkaSegment]:
        return [each for each in kafka_segments(self.house.kafka.bootstrap, self.kafkas) if each.state == FINISHED]

    def pairs(self) -> list[Pair]:
        store = DirectoryStore(self.house.store)
        pairs = []
        for kafkas, path in zip(self.finished(), self.house.manifests(self.ours), strict=True):
            reader = SegmentReader.open(store, str(path.relative_to(self.house.store)))
            assert reader.manifest.tierstate is not None
            ours = reader.manifest.tierstate.segment
            kafkas_log, our_log = stored(self.remote, kafkas, ".log"), b"".join(reader.read_log())
            pairs.append(Pair(kafkas, kafkas_log, ours, our_log, reader, self.local[ours.offsets.start]))
        return pairs

    def starts(self) -> list[int]:
        """Return the starts of the segments in our bucket."""
        return [int(path.name[:20]) for path in self.house.manifests(self.ours)]

    def kafkas_offsets(self, isolation: str = "read_committed") -> list[int]:
        """Return the offsets that Kafka's consumer gets from Kafka's tiered topic."""
        return [offset for offset, _ in read_from_beginning(self.house.kafka.bootstrap, self.kafkas, isolation)]

    def our_offsets(self, isolation: str = "read_committed") -> list[int]:
        command = ("consume", f"{self.ours}:0", "--isolation", isolation, "--format", "%o\\n")
        return [int(line) for line in self.house.run(*command).stdout.split()]

    def digests(self, isolation: str = "read_committed") -> tuple[Any, Any]:
        """Return the digests of Kafka's topic, read by Kafka's own client, and of ours, read by us."""
        flags = ("--isolation", isolation)
        return self.house.digests(self.kafkas, "--via", "broker", *flags), self.house.digests(self.ours, *flags)

    def alter(self, **config: str) -> None:
        """Change settings of both topics."""
        admin = AdminClient({"bootstrap.servers": self.house.kafka.bootstrap, "log_level": 0})
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        for topic in (self.kafkas, self.ours):
            resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
            admin.incremental_alter_configs([resource])[resource].result(30)

    def expire(self, segments_left: int) -> None:
        """Expire ours in one run of the agent, and Kafka's until as many are left; deleting more fails later."""
        self.house.run("agent", "--once", "--set", "expire.grace=0s")
        eventually(lambda: len(self.finished()) == segments_left)


@pytest.fixture(scope="module")
def gold(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Gold]:
    folder = tmp_path_factory.mktemp("gold")
    (remote := folder / "kafkas-tier").mkdir()
    failed = request.session.testsfailed
    kafka = KafkaSandbox(properties=kafkas_own_tiers(remote)).open()
    house = House(kafka, folder / "house", "gold")
    try:
        house.run("init")
        kafkas = house.create("kafkas", 1, remote_storage_enable="true", **CONFIG)
        ours = house.create("ours", 1, **CONFIG)
        produce(kafka, [ours, kafkas])
        local = {int(path.stem): path.read_bytes() for path in house.logs(ours)}
        house.run("agent", "--once")
        eventually(lambda: len(house.logs(ours)) == len(house.logs(kafkas)) == 1)
        yield Gold(house, kafkas, ours, remote, local)
    finally:
        house.close()
        kafka.close(keep_logs=request.session.testsfailed > failed)


def produce(kafka: KafkaSandbox, topics: list[str]) -> None:
    """Produce records of ten days ago, and of yesterday in transactions; after a restart as many again of those."""
    now = int(time.time() * 1000)
    with closing(Workload(kafka.bootstrap, topics, seed=1)) as before:
        before.plain(40, now - 10 * DAY_MS)
        before.transactions(8, now - DAY_MS)
    kafka.stop(0)
    kafka.start(0)
    with closing(Workload(kafka.bootstrap, topics, seed=2)) as after:
        after.transactions(8, now - DAY_MS)
        after.plain(30, now - DAY_MS)


def test_both_copied_the_same_segments_out_of_every_kind_of_record(gold: Gold) -> None:
    pairs = gold.pairs()
    assert [each.ours.offsets.start for each in pairs] == sorted(gold.local)[:-1]  # all but the active segment
    assert len(pairs) > 8
    assert any(len(each.kafkas.epochs) > 1 for each in pairs)
    assert len({epoch for each in pairs for epoch, _ in each.kafkas.epochs}) > 1
    assert any(each.ours.aborted for each in pairs)
    assert any(stored(gold.remote, each.kafkas, ".txnindex") for each in pairs)


def test_bytes_of_every_log_are_equal(gold: Gold) -> None:
    for each in gold.pairs():
        assert each.our_log == each.local
        assert without_marker_times(each.our_log) == without_marker_times(each.kafkas_log)
        assert len(each.our_log) == each.ours.log_bytes == each.kafkas.log_bytes


def test_offsets_and_leader_epochs_of_every_segment_are_equal(gold: Gold) -> None:
    for each in gold.pairs():
        ours = each.ours
        assert (ours.offsets.start, ours.offsets.end) == (each.kafkas.start, each.kafkas.end)
        assert tuple((entry.epoch, entry.start_offset) for entry in ours.leader_epochs.entries) == each.kafkas.epochs


def test_the_largest_timestamp_of_every_segment_counts_markers_on_both_sides(gold: Gold) -> None:
    later_markers = 0
    for each in gold.pairs():
        assert each.ours.max_timestamp == max_timestamp(each.our_log, control=True)
        assert each.kafkas.max_timestamp == max_timestamp(each.kafkas_log, control=True)
        later_markers += each.ours.max_timestamp > max_timestamp(each.our_log, control=False)
    assert 2 < later_markers < len(gold.pairs()) - 2


def test_indexes_epochs_and_aborted_transactions_of_every_log_are_equal(gold: Gold) -> None:
    for each in gold.pairs():
        for kind, suffix in SAME_FILES.items():
            assert (each.reader.indexes(kind) or b"") == stored(gold.remote, each.kafkas, suffix), suffix


def test_producer_snapshots_after_every_segment_are_equal(gold: Gold) -> None:
    for each in gold.pairs():
        files = (each.reader.indexes(IndexKind.PRODUCER_SNAPSHOT), stored(gold.remote, each.kafkas, ".snapshot"))
        ours, kafkas = (
            sorted(
                (p.producer_id, p.producer_epoch, p.last_sequence, p.last_offset, p.open_transaction_offset)
                for p in parse_producer_snapshot(file or b"", "snapshot")
            )
            for file in files
        )
        assert ours == kafkas
        assert ours


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_same_records_are_read_through_both(gold: Gold, isolation: str) -> None:
    offsets = gold.our_offsets(isolation)
    assert offsets == gold.kafkas_offsets(isolation)
    assert offsets[0] == 0
    assert len(offsets) > 900
    assert (len(offsets) < len(gold.our_offsets("read_uncommitted"))) == (isolation == "read_committed")
    kafkas, ours = gold.digests(isolation)
    assert ours == kafkas


def test_our_agent_leaves_kafkas_topic_alone_with_a_reason(gold: Gold) -> None:
    with gold.house.agent() as agent:
        eventually(lambda: 'tierstate_refused_partitions{reason="refused-kafka-tiered"} 1.0' in agent.metrics())
    assert not gold.house.manifests(gold.kafkas)


def test_retention_by_time_ends_at_the_same_offset(gold: Gold) -> None:
    """Segments of ten days ago expire; the one that begins in them and ends yesterday stays."""
    before = gold.pairs()
    stays = next(at for at, each in enumerate(before) if each.kafkas.max_timestamp > (time.time() - 5 * 86_400) * 1000)
    assert 1 < stays < len(before)
    gold.alter(retention_ms=str(5 * DAY_MS))
    gold.expire(len(before) - stays)
    assert_equal_after(gold, before, gone=stays)


def test_retention_by_size_ends_at_the_same_offset(gold: Gold) -> None:
    before = gold.pairs()
    keep = before[3:]
    active = sum(path.stat().st_size for path in gold.house.logs(gold.ours))
    gold.alter(retention_bytes=str(active + sum(each.ours.log_bytes for each in keep)))
    gold.expire(len(keep))
    assert_equal_after(gold, before, gone=3)


def assert_equal_after(gold: Gold, before: list[Pair], gone: int) -> None:
    """Require that ``gone`` segments of both were deleted with all their objects; and the same can be read."""
    eventually(lambda: not [path for each in before[:gone] for path in gold.remote.rglob(f"*{each.kafkas.id}*")])
    ended = {each.id for each in kafka_segments(gold.house.kafka.bootstrap, gold.kafkas) if each.state == DELETED}
    assert ended >= {each.kafkas.id for each in before[:gone]}
    assert not [
        path for each in before[:gone] for path in gold.house.objects() if str(each.ours.segment_id) in path.name
    ]
    assert [each.ours for each in gold.pairs()] == [each.ours for each in before[gone:]]
    offsets = eventually(lambda: [*gold.our_offsets()])
    assert offsets == gold.kafkas_offsets()
    assert offsets[0] >= before[gone].ours.offsets.start > before[gone - 1].ours.offsets.end
    kafkas, ours = gold.digests("read_uncommitted")
    assert ours == kafkas


def test_delete_records_of_an_operator_ends_kafkas_remote_data_and_never_ours(gold: Gold) -> None:
    before = gold.pairs()
    border = before[1].ours.offsets.start + 1
    ours = gold.our_offsets("read_uncommitted")
    admin = AdminClient({"bootstrap.servers": gold.house.kafka.bootstrap, "log_level": 0})
    places = [TopicPartition(topic, 0, border) for topic in (gold.kafkas, gold.ours)]
    for answer in admin.delete_records(places).values():
        answer.result(30)
    eventually(lambda: len(gold.finished()) == len(before) - 1)
    assert gold.kafkas_offsets("read_uncommitted")[0] == border
    gold.house.run("agent", "--once", "--set", "expire.grace=0s")
    assert gold.our_offsets("read_uncommitted") == ours


def test_a_marker_of_today_keeps_records_of_yesterday_in_both_tiers(gold: Gold) -> None:
    """Times of markers differ by milliseconds between the two logs, which does not matter to half a day."""
    half_a_day_ago = (time.time() - DAY_MS / 2000) * 1000
    kept = [each for each in gold.finished() if each.max_timestamp > half_a_day_ago]
    assert any(max_timestamp(stored(gold.remote, each, ".log"), control=False) < half_a_day_ago for each in kept)
    gold.alter(retention_ms=str(DAY_MS // 2))
    gold.house.run("agent", "--once", "--set", "expire.grace=0s")
    starts = {each.start for each in kept}
    assert starts <= {each.start for each in gold.finished()}
    assert starts <= {*gold.starts()}
