"""Every reader, at the lowest level that is its own code: it is given segments and a range, and hands out rows."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import TopicPartition

from tests.api.gateways import RECORDS, asgi_call
from tests.damage.segments import KEYRING, TOPIC, TOPIC_ID, Row, Segments, rows_of
from tests.fetch.two_tiers import OneTopic
from tests.log.batches import TIME
from tierstate.api.app import create_app
from tierstate.api.media import BATCHES, JSON
from tierstate.api.service import FetchService
from tierstate.app.opening.split_reads import SplitReads
from tierstate.cli import dump_log as dump
from tierstate.cli.digest import _count
from tierstate.cli.parameter_types import TopicArgument
from tierstate.cli.reading import TopicReads
from tierstate.consumer.assigned_partition import AssignedPartition, LookFailure
from tierstate.consumer.consumer_config import Mode
from tierstate.consumer.reads import Read
from tierstate.consumer.remote_looks import RemoteLooks
from tierstate.fetch.copied_segment import open_copied
from tierstate.fetch.open import Reading, open_past_reader
from tierstate.fetch.plan import plan
from tierstate.fetch.planned_split import PlannedSplit
from tierstate.fetch.reader import LogReader
from tierstate.fetch.verify_objects import Verifier
from tierstate.lake.columns import Columns
from tierstate.lake.export_ledger import Ledger
from tierstate.lake.export_plan import ExportPlan, Shape, TaskDone
from tierstate.lake.export_task import export_task
from tierstate.lake.jobs import Task
from tierstate.lake.log import TopicLog
from tierstate.lake.parquet import WRITER
from tierstate.lake.task_check import check_task
from tierstate.log.decode import decode_batches
from tierstate.log.record_columns import record_schema
from tierstate.proxy.budget import Budget
from tierstate.proxy.remote_reads import ReadKey, RemoteRead, RemoteReads
from tierstate.runtime.clock import Clock, SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.operation import run
from tierstate.runtime.pool import Pool
from tierstate.spark.batch import BatchReader
from tierstate.spark.options import parse_options
from tierstate.state import errors
from tierstate.state.errors import CorruptData, TierstateError
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Extent, Offset
from tierstate.state.routing import Tier
from tierstate.storage.memory import MemoryStore

SMALL = 600
"""The size in bytes of reads of a few batches each, where other readers take a segment at once."""
Rows = Callable[[Segments, Extent], Iterator[Row]]


@dataclass(frozen=True, slots=True)
class Reader:
    """``rows``: its rows, in order. ``whole``: it hands out nothing before it has read everything, like a task that
    commits, or a digest. ``of_rows``: its rows are records. ``one_segment``: it reads the damaged segment alone.
    """

    name: str
    rows: Rows
    whole: bool = False
    of_rows: bool = True
    one_segment: bool = False


class Answered(TierstateError):
    """A gateway answered with an error."""


def shown(data: bytes | memoryview, segments: Segments, start: int, end: int, aborted: Any) -> Iterator[Row]:
    """Yield the rows that a client decodes without checking a CRC."""
    batches = decode_batches(
        data, source="client", topic=TOPIC, partition=0, aborted=aborted, start=start, end=end, verify_crc=False
    )
    for batch in batches:
        yield from rows_of([batch])


# Readers by pieces: each piece asks for a route.


def read_records(segments: Segments, extent: Extent) -> Iterator[Row]:
    with segments.reader() as reader:
        log: Any = SimpleNamespace(source=lambda *given: reader, closes=lambda pieces: None, opened=lambda: None)
        read = Read(log, TOPIC, {0: (extent.start, extent.end)}, None, None, segments.form.isolation, None)
        for batch in read.to_batches():
            yield from rows_of([batch])


def consume(segments: Segments, extent: Extent) -> Iterator[Row]:
    with segments.reader() as reader:
        yield from _sourced(reader, segments, extent)


def consume_from_bucket(segments: Segments, extent: Extent) -> Iterator[Row]:
    control: Any = OneTopic(TOPIC, TOPIC_ID)
    reading = Reading(keys=segments.keys)
    source = open_past_reader(segments.tiers.view, control, segments.store, SystemClock(), reading)
    with closing(source) as reader:
        yield from _sourced(reader, segments, extent)


def _sourced(reader: LogReader, segments: Segments, extent: Extent) -> Iterator[Row]:
    for batch, _ in reader.records(TOPIC, 0, extent, segments.form.isolation, Tier.AUTO):
        yield from rows_of([batch])


def gateway_batches(segments: Segments, extent: Extent) -> Iterator[Row]:
    for answer, offset, reached in _asked(segments, extent, BATCHES):
        count = int.from_bytes(answer.content[-4:], "big")
        stop = len(answer.content) - 4 - 24 * count
        aborted = [_aborted(answer.content[stop + 24 * at :]) for at in range(count)]
        yield from shown(answer.content[:stop], segments, offset, min(reached, extent.end), aborted)


def _aborted(data: bytes) -> Any:
    producer, first, last = (int.from_bytes(data[at : at + 8], "big") for at in (0, 8, 16))
    return SimpleNamespace(producer_id=producer, first=first, last=last)


def gateway_json(segments: Segments, extent: Extent) -> Iterator[Row]:
    for answer, _, _ in _asked(segments, extent, JSON):
        for row in json.loads(answer.content):
            if row["offset"] < extent.end:
                yield row["offset"], row["timestamp"], _bytes(row["key"]), _bytes(row["value"])


def _bytes(text: str | dict[str, str] | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else None if text is None else repr(text).encode()


def _asked(segments: Segments, extent: Extent, media_type: str) -> Iterator[tuple[httpx.Response, int, int]]:
    """Yield answers, the offset from which each was requested, and the offset to go on from."""
    with segments.reader() as reader, closing(FetchService(reader, Gateway(), SystemClock())) as service:
        call, offset = asgi_call(create_app(service)), int(extent.start)
        while offset < extent.end:
            size = SMALL if media_type == BATCHES else 1 << 20
            isolation = segments.form.isolation.value
            answer = call(RECORDS, media_type, offset=offset, isolation_level=isolation, max_bytes=size)
            if answer.status_code != 200:
                error = answer.json()
                assert issubclass(getattr(errors, error["error"]), TierstateError), "of ours"
                # clients see no names of objects, but know what they asked for
                raise Answered(f"{TOPIC}-0: {error}")
            reached = int(answer.headers["x-next-offset"])
            yield answer, offset, reached
            offset = reached


def proxy(segments: Segments, extent: Extent) -> Iterator[Row]:
    """Read as a client of the proxy that checks no CRC, like librdkafka by default."""
    with segments.reader() as reader, closing(Pool("proxy", 1)) as pool:
        shared = RemoteReads(reader, pool, Budget(1 << 30, lambda taker: None), lambda place, offset, error: None)
        offset = extent.start
        while offset < extent.end:
            piece = asyncio.run(_cold(shared, offset, segments))
            assert piece.next_offset > offset
            yield from shown(piece.data, segments, offset, min(piece.limit, extent.end), piece.aborted)
            offset = piece.next_offset


async def _cold(shared: RemoteReads, offset: Offset, segments: Segments) -> Any:
    read = RemoteRead(ReadKey((TOPIC, 0), offset, segments.form.isolation, SMALL), shared)
    await read.task
    if read.error is not None:
        raise read.error
    return read.piece


# Readers of planned parts of segments: a segment that is read from end to end is proven as a whole.


def consumer(segments: Segments, extent: Extent) -> Iterator[Row]:
    """Read the remote tier as our consumer of both tiers does."""
    config: Any = SimpleNamespace(isolation=segments.form.isolation, mode=Mode.KAFKA_PREFERRED)
    nothing: Any = None
    with segments.reader() as reader, closing(RemoteLooks(config, nothing, nothing, SystemClock())) as looks:
        log, at = reader.partition(TOPIC, 0), int(extent.start)
        part = AssignedPartition(TopicPartition(TOPIC, 0, at))
        while at < extent.end:
            part.add(looks._read(part, log, at))
            while messages := part.take(1000):
                for message in messages:
                    if message.offset() >= extent.end:
                        return
                    yield message.offset(), message.timestamp()[1], message.key(), message.value()
            ended = part.end()
            if isinstance(ended, LookFailure):
                raise ended.error
            assert part.at > at
            at = part.at


@contextmanager
def planned(segments: Segments, extent: Extent) -> Iterator[list[PlannedSplit]]:
    with segments.reader() as reader:
        yield plan(reader, {(TOPIC, 0): (extent.start, extent.end)}, isolation=segments.form.isolation)


@cache
def _options(root: str, encrypted: bool, isolation: str) -> Any:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "tierstate.store": f"file://{root}",
        "subscribe": TOPIC,
        "isolation": isolation,
    }
    if encrypted:
        options["tierstate.keyring"] = str(KEYRING)
    return parse_options(options)


def spark(segments: Segments, extent: Extent) -> Iterator[Row]:
    options = _options(str(segments.root), segments.form.encrypted, segments.form.isolation.value)
    with planned(segments, extent) as splits:
        for batch in BatchReader(options)._read(tuple(splits)):
            yield from rows_of([batch])


def splits_of(segments: Segments, extent: Extent) -> Iterator[pa.RecordBatch]:
    reads = SplitReads(segments.store, segments.keys, None)
    with planned(segments, extent) as splits:
        for split in splits:
            yield from reads.records(split)


SHAPE = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def exported(segments: Segments, extent: Extent, place: MemoryStore) -> tuple[ExportPlan, Task, TaskDone]:
    """Run an export of one task. Return the plan, the task and its result."""
    shape = Shape(Columns(SHAPE), segments.form.isolation, 1 << 20, WRITER)
    task = Task(1, 0, extent.start, extent.end)
    plan_ = ExportPlan(TOPIC, TOPIC_ID, 1, shape, (task,))
    done = run(export_task(plan_, task, splits_of(segments, extent), Ledger(place, TOPIC_ID), None, ()))
    return plan_, task, done


def export(segments: Segments, extent: Extent) -> Iterator[Row]:
    place = MemoryStore()
    exported(segments, extent, place)
    files = [place.get(info.key) for info in place.list() if info.key.endswith(".parquet")]
    read = [pq.read_table(io.BytesIO(file)) for file in files]
    yield from rows_of(pa.concat_tables(read).cast(record_schema()).sort_by("offset").to_batches() if read else ())


@dataclass(frozen=True, slots=True)
class SegmentsAccess:
    """Access to the objects of segments: a `LogAccess`."""

    segments: Segments

    @contextmanager
    def reads(self, splits: Iterable[PlannedSplit], clock: Clock) -> Iterator[SplitReads]:
        yield SplitReads(self.segments.store, self.segments.keys, None)


def table_log(segments: Segments, reader: LogReader) -> TopicLog:
    return TopicLog(reader, TOPIC, segments.form.isolation, SegmentsAccess(segments), local=False)


def table(segments: Segments, extent: Extent) -> Iterator[Row]:
    with segments.reader() as reader:
        log = table_log(segments, reader)
        for split in log.planned(0, extent).splits(1 << 20):
            for batch in log.read(split):
                yield from rows_of([batch])


def digest(segments: Segments, extent: Extent) -> Iterator[Row]:
    """Yield one row that stands for all: the digest."""
    with segments.reader() as reader:
        reads = TopicReads(reader, TopicArgument(TOPIC, 0), segments.form.isolation)
        whole, _ = _count(reads, 0, extent, [])
        yield whole.records, 0, None, whole.digest.encode()


def dump_log(segments: Segments, extent: Extent) -> Iterator[Row]:
    """Read one segment by its manifest alone. `dump-log` says first that the log is another one, then prints it."""
    key = object_key(segments.segment.object_key, ObjectKind.MANIFEST)
    log = open_copied(segments.store, key, keys=segments.keys)
    if (wrong := dump._another_log(log)) is not None:
        raise CorruptData(wrong)
    for piece in log.pieces(committed=True):
        for record in piece.records():
            if extent.start <= record.offset < extent.end:
                yield record.offset, record.timestamp, record.key, record.value


def by_time(segments: Segments, extent: Extent) -> Iterator[Row]:
    """Yield the first offset at or after each of some times."""
    with segments.reader() as reader:
        for offset in range(extent.start, extent.end, 11):
            record = reader.offset_for_time(TOPIC, 0, TIME + 1000 * offset)
            if record is not None:
                yield int(record[0]), int(record[1]), None, None


SEGMENTS = (
    Reader("Spark", spark, whole=True),
    Reader("export", export, whole=True),
    Reader("table follow", table, whole=True),
    Reader("digest", digest, whole=True, of_rows=False),
    Reader("read_records", read_records),
    Reader("consume", consume),
    Reader("consume --source bucket", consume_from_bucket),
)
"""Readers that read segments in their order, and prove each one that they read from end to end."""
PIECES = (
    Reader("gateway, stored batches", gateway_batches),
    Reader("gateway, JSON", gateway_json),
    Reader("proxy", proxy),
)
"""Readers that are asked for one offset at a time."""
OTHERS = (
    Reader("TieredConsumer", consumer),
    Reader("by time", by_time, whole=True, of_rows=False),
    Reader("dump-log", dump_log, one_segment=True),
)


def checked_export(segments: Segments, made: tuple[MemoryStore, ExportPlan, Task, TaskDone]) -> list[str]:
    """Return what `export --check` finds wrong with an export that was made before. Raises as reading does."""
    place, plan_, task_, done = made
    extent = Extent(task_.start, task_.end)
    return [finding.problem for finding in check_task(plan_, task_, done, splits_of(segments, extent), place).findings]


def found_by_verify(segments: Segments, level: int) -> list[str]:
    view = segments.tiers.view
    verifier = Verifier(segments.store, level, lambda partition: view.partition(partition), keys=segments.keys)
    try:
        return [f"{item.what} {item.object}" for item in verifier.objects(view.partition(segments.tiers.partition))]
    except CorruptData as error:
        return [str(error)]
