"""Each client begins in the remote tier: at borders, at a time, in a group. And it reads records of 6 MB.

A client should read what librdkafka read at the broker before the trim. `test_clients.py` shows that each client reads
that from the earliest offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.consumer.tiered_cluster import TieredCluster
from tests.proxy.clients import (
    ANYWHERE,
    GROUP,
    IGNORE_APPEND_TIME,
    PARTITIONS,
    READS,
    WAYS,
    level_of,
    without_markers,
)
from tests.proxy.python_clients import Rows
from tests.proxy.running import RunningProxy, running
from tests.proxy.scenario import FIRST_MS, LARGE, LARGE_BYTES, Scenario
from tests.proxy.starts import EARLIEST, At, Group, Read, Start, Time
from tierstate.log.batch import BatchHeader, iter_batches
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.routing import Isolation, Tier

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800)]
NAMES = [pytest.param(name, marks=[pytest.mark.slow] if at > 1 else []) for at, name in enumerate(ANYWHERE)]
MEMBER_READS = 300
"""The number of records after which the first member of a group ends: all of them are in the remote tier."""


@dataclass
class World(Scenario):
    """``local`` has where each topic begins at the broker. ``absent`` says why a client is not on this machine."""

    local: dict[str, list[int]] = field(default_factory=dict)
    offsets_of_times: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """What the broker answered before the trim, by topic and time."""
    large_before: dict[str, Rows] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    proxy: RunningProxy = field(init=False)
    _read: dict[str, dict[Read, Rows]] = field(default_factory=dict)

    def borders(self, topic: str) -> list[At]:
        """Return as starts: a segment's first offset, an offset inside a batch, and the last one of the remote tier.

        The batch is among the transactions, which are in the first segment.
        """
        places: list[tuple[int, int, int]] = []
        for partition in range(PARTITIONS):
            local = self.local[topic][partition]
            segments = [each.offsets.start for each in self.proxy.reader.view(topic, partition).readable]
            batch = next(each for each in self._batches(topic, partition, 100) if each.record_count > 1)
            assert 0 < batch.last_offset < segments[1] < local - 1, "the batch or the segment is not where it should be"
            places.append((segments[1], batch.base_offset + batch.record_count // 2, local - 1))
        return [At(offsets) for offsets in zip(*places, strict=True)]

    def _batches(self, topic: str, partition: int, offset: int) -> Iterator[BatchHeader]:
        fetch = partial(self.proxy.reader.fetch, topic, partition, max_bytes=1 << 20)
        while offset < self.local[topic][partition]:
            piece = fetch(offset, isolation=Isolation.READ_UNCOMMITTED, tier=Tier.REMOTE)
            yield from iter_batches(piece.data, source="piece")
            offset = piece.next_offset

    def time(self, topic: str) -> Time:
        """Return a time at which all partitions are in the middle of the remote tier."""
        times = [
            ms
            for (name, ms), offsets in self.offsets_of_times.items()
            if name == topic and all(100 < at < local for at, local in zip(offsets, self.local[topic], strict=True))
        ]
        return Time(times[len(times) // 2])

    def read(self, client: str) -> dict[Read, Rows]:
        """Return what the client reads through the proxy: one process reads from all starts, except in groups."""
        self.skip_if_absent(client)
        if client not in self._read:
            topic = self.read_by(client)
            starts: list[Start] = [*self.borders(topic), self.time(topic)]
            reads = [Read(self.topics[LARGE], EARLIEST), *(Read(topic, start) for start in starts)]
            rows = ANYWHERE[client](self.proxy.bootstrap, level_of(client), reads)
            self._read[client] = dict(zip(reads, rows, strict=True))
        return self._read[client]

    def from_offsets(self, client: str, offsets: tuple[int, ...] | list[int]) -> Rows:
        """Return what the client should read from these offsets of its topic."""
        return [row for row in self.truth(client, level_of(client)) if row[1] >= offsets[row[0]]]

    def skip_if_absent(self, client: str) -> None:
        if client in self.absent:
            pytest.skip(f"{client}: {self.absent[client]}")


def at_times(bootstrap: str, topic: str, times: range) -> dict[tuple[str, int], list[int]]:
    """Return the offsets of all partitions by topic and time."""
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "times"})) as consumer:
        return {
            (topic, ms): [each.offset for each in consumer.offsets_for_times(places, 20)]
            for ms in times
            for places in [[TopicPartition(topic, number, ms) for number in range(PARTITIONS)]]
        }


@pytest.fixture(scope="module")
def world(
    kafka: KafkaSandbox, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    tests = [item for item in request.session.items if isinstance(item, pytest.Function)]
    clients = {str(test.callspec.params["name"]) for test in tests if test.module is request.module}
    made = World(TieredCluster(kafka, tmp_path_factory.mktemp("anywhere"), "_tier-state-anywhere"))
    made.fill_topics(sorted({LARGE, *(READS.get(client, "orders") for client in clients)}))
    for topic, times in made.late_times.items():
        made.offsets_of_times |= at_times(kafka.bootstrap, topic, times)
    for client in sorted(clients, key=list(ANYWHERE).index):
        try:
            read = Read(made.topics[LARGE], EARLIEST)
            (made.large_before[client],) = ANYWHERE[client](kafka.bootstrap, level_of(client), [read])
        except pytest.skip.Exception as reason:
            made.absent[client] = str(reason)
    made.cluster.run("agent", "--once")
    made.local = {
        topic: [made.cluster.local_start(topic, number) for number in range(PARTITIONS)]
        for topic in made.topics.values()
    }
    with running(made.cluster) as made.proxy:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_a_client_reads_large_records_and_times_of_append(world: World, name: str) -> None:
    topic = world.topics[LARGE]
    rows = world.read(name)[Read(topic, EARLIEST)]
    for partition, local in enumerate(world.local[topic]):
        large = [row[1] for row in rows if row[0] == partition and len(row[4] or b"") == LARGE_BYTES]
        assert [at < local for at in large] == [True, False], "one is in the remote tier, and one is not"
    assert rows == world.large_before[name]
    truth = world.truth(name, level_of(name), topic)
    assert FIRST_MS not in {row[2] for row in truth}, "a time is not that of an append"
    if name in IGNORE_APPEND_TIME:
        truth = [(*row[:2], FIRST_MS, *row[3:]) for row in truth]
    assert rows == truth


@pytest.mark.parametrize("name", NAMES)
def test_a_client_begins_at_borders(world: World, name: str) -> None:
    borders = {read.start: rows for read, rows in world.read(name).items() if isinstance(read.start, At)}
    assert len(borders) == 3
    for start, rows in borders.items():
        assert without_markers(name, rows) == world.from_offsets(name, start.offsets), start


@pytest.mark.parametrize("name", NAMES)
def test_a_client_begins_at_a_time(world: World, name: str) -> None:
    ((read, rows),) = ((read, rows) for read, rows in world.read(name).items() if isinstance(read.start, Time))
    assert isinstance(read.start, Time)
    offsets = world.offsets_of_times[read.topic, read.start.ms]
    assert without_markers(name, rows) == world.from_offsets(name, offsets), (read.start, offsets)


@pytest.mark.parametrize("name", [each for each in NAMES if GROUP in WAYS[str(each.values[0])]])
def test_a_group_goes_on_where_it_committed_in_the_remote_tier(world: World, name: str) -> None:
    world.skip_if_absent(name)
    topic = world.read_by(name)
    group = f"{topic}-{''.join(letter for letter in name if letter.isalnum())}"

    def member(records: int | None) -> Rows:
        read = Read(topic, Group(group, records))
        (rows,) = ANYWHERE[name](world.proxy.bootstrap, level_of(name), [read])
        return without_markers(name, rows)

    first = member(MEMBER_READS)
    assert len(first) > MEMBER_READS // 2
    assert all(row[1] < world.local[topic][row[0]] for row in first), "the group left the remote tier"
    second = member(None)
    assert sorted(first + second, key=lambda row: row[:2]) == world.truth(name, level_of(name)), (
        "skipped, or read twice"
    )
