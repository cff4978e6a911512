"""An agent that copies by Fetch writes what an agent on the broker's host writes, and opens no file of the broker."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.consumer.tiered_cluster import TieredCluster
from tests.kip405.kafkas_tiers import transactions
from tierstate.app.opening.connection import Connection
from tierstate.cli.main import run
from tierstate.runtime.settings_load import load_settings
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.ids import TopicIdPartition
from tierstate.state.routing import Isolation
from tierstate.state.segment import RemoteSegment
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.manifest import IndexKind
from tierstate.storage.segment.reader import SegmentReader

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
FETCH = '[copy]\nroll_bytes = "1GiB"\nroll_after = "1h"\n'
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STEPS = [
    ("one", "begin"), ("one", "write"), ("two", "begin"), ("two", "write"), ("one", "write"), ("one", "abort"),
    ("three", "begin"), ("three", "write"), ("two", "write"), ("two", "commit"), ("one", "begin"), ("one", "write"),
    ("three", "write"), ("three", "abort"), ("one", "write"), ("one", "commit"),
]  # fmt: skip


class Fetching(TieredCluster):
    """The same cluster with an agent that copies by Fetch, into a store and a tier-state topic of its own."""

    def __init__(self, kafka: KafkaSandbox, folder: Path, facts: str, include: str) -> None:
        super().__init__(kafka, folder, facts)
        text = self.settings_file.read_text()
        folders = f'log_dirs = ["{kafka.brokers[0].log_dir}"]'
        assert folders in text
        text = text.replace(folders, 'source = "fetch"').replace(f"{facts.strip('_')}-.*", include)
        self.settings_file.write_text(text)
        self.settings(FETCH)


@pytest.fixture
def both(kafka: KafkaSandbox, tmp_path: Path) -> tuple[TieredCluster, Fetching]:
    name = tmp_path.name.replace("_", "-")  # each test has stores of its own, so tier-state topics of its own
    disk = TieredCluster(kafka, tmp_path / "disk", f"_{name}-disk")
    return disk, Fetching(kafka, tmp_path / "fetch", f"_{name}-fetch", f"{name}-disk-.*")


def produce_all_kinds(cluster: TieredCluster, topic: str) -> None:
    """Write batches of all codecs, headers with null, and interleaved transactions that cross segments."""
    for codec in CODECS:
        producer = Producer({**cluster.kafka.client_config, "compression.type": codec, "batch.num.messages": 20})
        for number in range(80):
            producer.produce(topic, b"%d" % number * 50, b"key", 0, headers=[("a", None), ("b", b"1")])
        assert producer.flush(30) == 0
    for _ in range(4):
        transactions(cluster.kafka, topic, STEPS)
    cluster.produce(topic, 0, 200)


def segments(cluster: TieredCluster, topic: str) -> tuple[list[RemoteSegment], Connection]:
    connection = Connection(load_settings(cluster.settings_file, (), {}, None, None))
    described = connection.control.topic(topic)
    with closing(connection.view()) as view:
        found = view.partition(TopicIdPartition(described.topic_id, 0)).readable
    return sorted(found, key=lambda each: each.offsets.start), connection


def parts(cluster: TieredCluster, topic: str, keys: KeyRing | None = None) -> list[dict[str, Any]]:
    """Return of each segment what both agents must agree about."""
    found, connection = segments(cluster, topic)
    with closing(connection):
        answer = []
        for segment in found:
            reader = SegmentReader.open(connection.store, segment.object_key, keys=keys)
            block = reader.manifest.tierstate
            assert block is not None
            log = b"".join(map(bytes, reader.plain_range(0, reader.plain_bytes)))
            answer.append(
                {
                    "offsets": segment.offsets,
                    "log": log,
                    "offset index": reader.indexes(IndexKind.OFFSET),
                    "transaction index": reader.indexes(IndexKind.TRANSACTION),
                    "leader epochs": reader.indexes(IndexKind.LEADER_EPOCHS),
                    "aborted": block.aborted,
                    "epochs": segment.leader_epochs,
                    "records": segment.record_count,
                    "max timestamp": segment.max_timestamp,
                    "last": segment.last_record_offset,
                    "chunks": block.chunk_first_offsets,
                }
            )
        return answer


@pytest.mark.essential
def test_segments_are_equal_byte_for_byte(
    both: tuple[TieredCluster, Fetching], capsys: pytest.CaptureFixture[str]
) -> None:
    disk, fetch = both
    topic = disk.topic("all-kinds", records=300)
    produce_all_kinds(disk, topic)
    fetch.run("agent", "--once", "--set", "trim.enabled=false")
    disk.run("agent", "--once", "--set", "trim.enabled=false")
    ours, theirs = parts(fetch, topic), parts(disk, topic)
    assert len(ours) > 5
    assert sum(len(each["aborted"]) for each in ours) > 4
    for mine, its in zip(ours, theirs, strict=True):
        assert {name for name, value in its.items() if mine[name] != value} == set(), mine["offsets"]
    capsys.readouterr()
    assert run(["verify", topic, "--level", "3", "--json", "--config", str(fetch.settings_file)]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def digests(cluster: TieredCluster, topic: str, capsys: pytest.CaptureFixture[str], *more: str) -> list[Any]:
    """Return number and digest of the records, read_committed and read_uncommitted."""
    answer = []
    for isolation in Isolation:
        capsys.readouterr()
        options = ("--isolation", isolation.value, "--json", "--config", str(cluster.settings_file))
        assert run(["digest", topic, *options, *more]) == 0
        (partition,) = json.loads(capsys.readouterr().out)["partitions"]
        answer.append((partition["records"], partition["digest"]))
    return answer


def test_segments_of_its_own_size_are_trimmed_and_read_back(
    both: tuple[TieredCluster, Fetching], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run is a process that knows only what the spool's folder and the bucket keep."""
    disk, fetch = both
    topic = disk.topic("own-size", records=0)
    small = ("--set", "copy.roll_bytes=5KiB", "--set", "agent.spool=1MiB")
    for _ in range(3):
        produce_all_kinds(disk, topic)
        before = digests(fetch, topic, capsys)
        fetch.run("agent", "--once", *small)
        assert digests(fetch, topic, capsys) == before
    assert disk.local_start(topic) > 1000
    found, connection = segments(fetch, topic)
    connection.close()
    assert len(found) > 10
    assert max(each.log_bytes for each in found) < 12_000, "a batch more than its size"
    assert [each.offsets.start for each in found[1:]] == [each.offsets.end + 1 for each in found[:-1]]
    assert not list((fetch.folder / "state" / "agent" / "spool").rglob("*.log")), "nothing is left in the spool"
    capsys.readouterr()
    assert run(["verify", topic, "--level", "3", "--json", "--config", str(fetch.settings_file)]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_a_first_copy_begins_inside_a_batch_and_inside_open_transactions(
    both: tuple[TieredCluster, Fetching], capsys: pytest.CaptureFixture[str]
) -> None:
    """One of these transactions is committed behind the first offset, and one is aborted."""
    disk, fetch = both
    topic = disk.topic("open", records=100)
    begun = [("one", "begin"), ("one", "write"), ("two", "begin"), ("two", "write"), ("one", "write"), ("two", "write")]
    ended = [("three", "begin"), ("three", "write"), ("one", "commit"), ("three", "abort"), ("two", "abort")]
    transactions(disk.kafka, topic, [*begun, *ended])
    disk.produce(topic, 0, 200)
    start = TopicPartition(topic, 0, 150)
    disk.admin.delete_records([start])[start].result(30)
    before = digests(fetch, topic, capsys)
    assert before[0] != before[1], "something is aborted"
    fetch.run("agent", "--once", "--set", "copy.roll_bytes=4KiB")
    assert disk.local_start(topic) > 200
    assert digests(fetch, topic, capsys) == before
    mine = parts(fetch, topic)
    assert mine[0]["offsets"].start < 150, "the batch of the first offset is whole"
    assert any(entry.first < 150 for entry in mine[0]["aborted"])


def test_an_agent_with_public_keys_alone_knows_open_transactions_after_a_restart(
    both: tuple[TieredCluster, Fetching], tmp_path: Path
) -> None:
    """It cannot read the producer snapshot that it encrypted: what is open is in its own state folder."""
    disk, fetch = both
    topic = disk.topic("public", records=50)
    assert run(["keys", "new", "key1", "--bits", "2048", "--dir", str(tmp_path / "keys")]) == 0
    ring, public = tmp_path / "keys" / "keyring.toml", tmp_path / "keys" / "public.toml"
    public.write_text("".join(line for line in ring.read_text().splitlines(True) if "private" not in line))
    begun = [("one", "begin"), ("one", "write"), ("two", "begin"), ("two", "write")]
    ended = [("one", "abort"), ("two", "commit")]
    producers: dict[str, Producer] = {}
    for steps in (begun, [], ended):
        transactions(disk.kafka, topic, steps, producers=producers)
        disk.produce(topic, 0, 400)
        fetch.run("agent", "--once", "--set", f"encryption.keyring={public}", "--set", "trim.enabled=false")
    disk.run("agent", "--once", "--set", "trim.enabled=false")
    ours, theirs = parts(fetch, topic, KeyRing.load(ring)), parts(disk, topic)
    assert len(ours) > 4
    assert any(each["aborted"] for each in ours)
    for mine, its in zip(ours, theirs, strict=True):
        assert {name for name, value in its.items() if mine[name] != value} == set(), mine["offsets"]


def test_a_check_tries_the_fences_of_the_leaders(
    both: tuple[TieredCluster, Fetching], capsys: pytest.CaptureFixture[str]
) -> None:
    disk, fetch = both
    disk.topic("checked", records=10)
    capsys.readouterr()
    assert run(["check", "--json", "--config", str(fetch.settings_file)]) == 0
    rows = {each["check"]: each for each in json.loads(capsys.readouterr().out)}
    assert rows["fetching"]["detail"].startswith("1 leader fences by epoch and topic id; ")
    assert "log folders" not in rows
    folders = f"agent.log_dirs={disk.kafka.brokers[0].log_dir}"
    assert run(["check", "--json", "--config", str(fetch.settings_file), "--set", folders]) == 1
    rows = {each["check"]: each for each in json.loads(capsys.readouterr().out)}
    assert "an agent reads one of both" in rows["fetching"]["detail"]
    assert run(["agent", "--once", "--config", str(fetch.settings_file), "--set", folders]) == 2
