"""Transactions on a real broker, copied, trimmed and read across the border, against Kafka's own client."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fetch.two_tiers import Folder, Row, TwoTiers, rows_of
from tierstate.broker.open import Broker, open_broker
from tierstate.broker.plain_reads import PlainConsumer
from tierstate.fetch.local import BrokerTier
from tierstate.fetch.open import Reading, open_reader
from tierstate.fetch.plan import PlannedSplit, plan
from tierstate.fetch.reader import LogReader
from tierstate.fetch.split import read_split
from tierstate.log.batch import iter_batches
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.settings import Cache
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import OffsetOutOfRange
from tierstate.state.ids import BrokerId, TopicIdPartition
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.routing import Isolation, Tier
from tierstate.state.segment import RemoteSegment
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.segment.reader import read_manifest

pytestmark = pytest.mark.kafka
TOPIC = "fetch-two-tiers"
BOTH = (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)
FIRST_MS = 1_767_225_600_000


Answer = list[Row] | str
Edges = dict[str, set[int]]


@dataclass
class Real:
    """``edges``: the first and the last offset of every segment, chunk and batch. ``before``: the broker's answers
    there and one offset to either side, before anything was trimmed."""

    reader: LogReader
    broker: Broker
    store: DirectoryStore
    expected: dict[Isolation, list[Row]]
    local_start: int
    end: int
    edges: Edges
    before: dict[tuple[Isolation, int], Answer]


def produce(bootstrap: str) -> None:
    """Two transactional producers whose batches interleave, plain records between; timestamps go back and forth."""
    common = {"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 3, "compression.type": "zstd"}
    writers: list[Any] = [Producer({**common, "transactional.id": f"fetch-{n}"}) for n in (1, 2)]
    plain: Any = Producer(common)
    for writer in writers:
        writer.init_transactions(30)
    number = 0
    for turn in range(60):
        for writer in writers:
            writer.begin_transaction()
        for _ in range(3):
            for producer in (*writers, plain):
                for _ in range(2):
                    time = FIRST_MS + number * 10 - (number % 7) * 300
                    value = f"value {number}".encode() * 5
                    producer.produce(TOPIC, value, str(number % 11), timestamp=time, partition=0)
                    number += 1
                producer.flush(30)
        for at, writer in enumerate(writers):
            if (turn + at) % 3 == 0:
                writer.abort_transaction(30)
            else:
                writer.commit_transaction(30)


def client_rows(bootstrap: str, isolation: Isolation, end: int) -> list[Row]:
    with closing(PlainConsumer({"bootstrap.servers": bootstrap}, isolation, SystemClock())) as client:
        batches = list(client.records(TOPIC, 0, Offset(0), Offset(end)))
    return [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers) for batch in batches for r in batch]


@pytest.fixture(scope="module")
def real(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap})
    config = {"internal.segment.bytes": "12000", "index.interval.bytes": "1000", "retention.ms": "-1"}
    config["segment.ms"] = str(10**15)  # markers carry the broker's time, far from the records': they would roll
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(30)
    produce(kafka.bootstrap)
    with open_broker({"bootstrap.servers": kafka.bootstrap}) as broker:
        described = broker.control.topic(TOPIC)
        folder = Folder(Path(kafka.brokers[0].log_dir) / f"{TOPIC}-0")
        end = broker.control.bounds(TOPIC, 0).last_stable_offset
        expected = {isolation: client_rows(kafka.bootstrap, isolation, end) for isolation in BOTH}
        store = DirectoryStore(tmp_path_factory.mktemp("fetch") / "store")
        tiers = TwoTiers(TopicIdPartition(described.topic_id, 0), TOPIC, store)
        bases = folder.bases[:4]
        assert len(folder.bases) > 4, folder.bases
        edges = edges_of(folder, store, tiers.copy_all(folder, 3, chunk_bytes=5_000))
        border = bases[2] + 7  # inside the third segment: both tiers have a part of it
        with closing(tiers.view):
            cache = Cache(memory=1 << 20)
            with closing(open_reader(tiers.view, broker, store, SystemClock(), Reading(cache))) as reader:
                places = [(isolation, offset) for isolation in BOTH for offset in beside(edges)]
                before = {place: answer(reader, *place, Tier.LOCAL) for place in places}
                broker.control.delete_records_on(BrokerId(1), TOPIC, 0, Offset(border))
                yield Real(reader, broker, store, expected, border, end, edges, before)


def edges_of(folder: Folder, store: DirectoryStore, copied: list[RemoteSegment]) -> Edges:
    batches = list(iter_batches(folder.log(), source="folder"))
    begins = {batch.base_offset for batch in batches}
    edges: Edges = {"batch": begins | {batch.last_offset for batch in batches}}
    edges["segment"] = {at for base in folder.bases for at in (base, base - 1)} - {-1}
    edges["chunk"] = set()
    for segment in copied:
        block = read_manifest(store, segment.object_key).tierstate
        assert block is not None
        firsts = [first for first in block.chunk_first_offsets if first is not None]
        edges["chunk"] |= {at for first in firsts for at in (first, first - 1)} - {-1}
    return edges


def beside(edges: Edges) -> list[int]:
    return sorted({at + near for offsets in edges.values() for at in offsets for near in (-1, 0, 1)})


def answer(reader: LogReader, isolation: Isolation, start: int, tier: Tier) -> Answer:
    """Return the records, from ``start`` on, of the first batch that has any; or which end or error came instead."""
    position = start
    try:
        while True:
            piece = reader.fetch(TOPIC, 0, position, max_bytes=1, isolation=isolation, tier=tier)
            if records := rows_of([piece]):
                return records
            if piece.next_offset == position:
                return "the end"
            position = piece.next_offset
    except OffsetOutOfRange:
        return "out of range"


def walk(real: Real, start: int, max_bytes: int, isolation: Isolation) -> list[Any]:
    pieces, position = [], start
    while position < real.end:
        piece = real.reader.fetch(TOPIC, 0, position, max_bytes=max_bytes, isolation=isolation)
        assert piece.next_offset > position
        position = piece.next_offset
        pieces.append(piece)
    return pieces


@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("max_bytes", [1, 500, 3_000, 1 << 20])
def test_small_fetches_that_cut_transactions_show_what_kafkas_client_shows(
    real: Real, isolation: Isolation, max_bytes: int
) -> None:
    pieces = walk(real, 0, max_bytes, isolation)
    assert rows_of(pieces) == real.expected[isolation]
    assert {piece.tier for piece in pieces} == {Tier.LOCAL, Tier.REMOTE}
    if isolation is Isolation.READ_COMMITTED:
        assert len(real.expected[isolation]) < len(real.expected[Isolation.READ_UNCOMMITTED])
        assert any(piece.aborted for piece in pieces if piece.tier is Tier.LOCAL)
        assert any(piece.aborted for piece in pieces if piece.tier is Tier.REMOTE)


@pytest.mark.parametrize("isolation", BOTH)
def test_every_offset_is_a_start_on_both_sides_of_the_border(real: Real, isolation: Isolation) -> None:
    for start in range(real.end):
        piece = real.reader.fetch(TOPIC, 0, start, max_bytes=1, isolation=isolation)
        assert piece.tier is (Tier.REMOTE if start < real.local_start else Tier.LOCAL)
        expected = [row for row in real.expected[isolation] if start <= row[0] < piece.next_offset]
        assert rows_of([piece]) == expected


@pytest.mark.parametrize("isolation", BOTH)
def test_answers_at_every_edge_of_segments_chunks_and_batches_are_those_before_the_trim(
    real: Real, isolation: Isolation
) -> None:
    _, remote_end = real.reader.extent(TOPIC, 0, tier=Tier.REMOTE)
    sides = {kind: {at < real.local_start for at in offsets} for kind, offsets in real.edges.items()}
    assert sides == {"batch": {True, False}, "segment": {True, False}, "chunk": {True, False}}
    starts = beside(real.edges)
    assert starts[0] == -1
    assert starts[-1] == real.end
    assert real.before[isolation, -1] == "out of range"
    for start in starts:
        before = real.before[isolation, start]
        after = answer(real.reader, isolation, start, Tier.AUTO)
        if isinstance(before, list) and isinstance(after, list) and after[-1][0] < real.local_start <= before[-1][0]:
            rest = answer(real.reader, isolation, real.local_start, Tier.AUTO)
            assert isinstance(rest, list)
            after += rest  # the border lies within a batch: each tier gives its part of it
        assert after == before, start
        if 0 <= start < remote_end and isinstance(before, list) and before[0][0] < remote_end:
            assert answer(real.reader, isolation, start, Tier.REMOTE) == before, start
        if start >= real.local_start:
            assert answer(real.reader, isolation, start, Tier.LOCAL) == before, start


@pytest.mark.parametrize("isolation", BOTH)
def test_a_scan_across_the_border_is_exactly_its_range(real: Real, isolation: Isolation) -> None:
    for start, stop in ((0, real.end), (real.local_start - 3, real.local_start + 3), (5, 6), (9, 9)):
        pieces = real.reader.scan(TOPIC, 0, start, stop, isolation=isolation, piece_bytes=2_000)
        assert rows_of(pieces) == [row for row in real.expected[isolation] if start <= row[0] < stop]


def test_the_first_record_at_or_after_a_time_is_found_in_the_tier_that_has_it(real: Real) -> None:
    rows = real.expected[Isolation.READ_UNCOMMITTED]
    times = [row[1] for row in rows]
    for time in range(min(times) - 5, max(times) + 5, 97):
        expected = next(((row[0], row[1]) for row in rows if row[1] >= time), None)
        assert real.reader.offset_for_time(TOPIC, 0, TimestampMs(time)) == expected


@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("max_split_bytes", [2_000, 1 << 20])
def test_a_plan_reads_exactly_its_ranges_without_a_view(real: Real, isolation: Isolation, max_split_bytes: int) -> None:
    ranges = {(TOPIC, 0): (Offset(3), Offset(real.end - 2))}
    splits = plan(real.reader, ranges, isolation=isolation, max_split_bytes=max_split_bytes)
    sent: list[PlannedSplit] = pickle.loads(pickle.dumps(splits))  # as Spark sends them
    assert sent == splits
    assert (len(splits) > 5) == (max_split_bytes == 2_000)
    local = BrokerTier(real.broker)
    records = [row for split in sent for row in rows_of(read_split(split, real.store, local))]
    assert records == [row for row in real.expected[isolation] if 3 <= row[0] < real.end - 2]
