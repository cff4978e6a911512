"""One protocol for sources of records: tierstate's reader of both tiers, the gateway, or Kafka's own client.

`consume` and `digest` use it, so only the source differs if they read the same records in two ways.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Protocol

from ..broker.plain_reads import PlainConsumer, PlainRecord
from ..state.offsets import Extent, Offset, TimestampMs
from ..state.routing import Isolation, Tier
from .reader import LogReader, records
from .search import Search

if TYPE_CHECKING:
    import pyarrow as pa


class RecordSource(Protocol):
    """A way to read records. Raises UnknownTopic, OffsetOutOfRange, LogGap, CorruptData, Unavailable."""

    def partitions(self, topic: str) -> list[int]:
        """Return the partition numbers, ascending."""
        ...

    def extent(self, topic: str, partition: int, isolation: Isolation, tier: Tier) -> Extent:
        """Return the offsets that can be read now."""
        ...

    def first_at(self, topic: str, partition: int, timestamp: TimestampMs) -> Offset | None:
        """Return the offset of the first record at or after a time, or None."""
        ...

    def records(
        self,
        topic: str,
        partition: int,
        extent: Extent,
        isolation: Isolation,
        tier: Tier,
        *,
        columns: Sequence[str] | None = None,
    ) -> Generator[tuple[pa.RecordBatch, Tier], None, None]:
        """Yield exactly the records of ``extent``, and the tier that served each batch.

        ``columns``: those of `record_schema` to yield, in this order; None: all. Others are not decoded.
        Closing the generator stops reading ahead.
        """
        ...


class SearchedSource(RecordSource, Protocol):
    """A source that also searches for records."""

    def found(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, tier: Tier, search: Search
    ) -> Generator[tuple[pa.RecordBatch, Tier], None, None]:
        """Yield, like `RecordSource.records`, only records that match ``search``. A batch may be empty."""
        ...


class ReaderSource:
    """Reads both tiers directly, without a gateway."""

    def __init__(self, reader: LogReader) -> None:
        self.reader = reader

    def partitions(self, topic: str) -> list[int]:
        return list(range(self.reader.topic(topic).partitions))

    def extent(self, topic: str, partition: int, isolation: Isolation, tier: Tier) -> Extent:
        return self.reader.extent(topic, partition, isolation=isolation, tier=tier)

    def first_at(self, topic: str, partition: int, timestamp: TimestampMs) -> Offset | None:
        first = self.reader.offset_for_time(topic, partition, timestamp)
        return first[0] if first else None

    def records(
        self,
        topic: str,
        partition: int,
        extent: Extent,
        isolation: Isolation,
        tier: Tier,
        *,
        columns: Sequence[str] | None = None,
    ) -> Generator[tuple[pa.RecordBatch, Tier], None, None]:
        for piece in self.reader.scan(topic, partition, *extent, isolation=isolation, tier=tier):
            for batch in records(piece, topic, partition, columns=columns, milliseconds=True):
                yield batch, piece.tier

    def found(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, tier: Tier, search: Search
    ) -> Generator[tuple[pa.RecordBatch, Tier], None, None]:
        from ..log.record_filter import RecordFilter  # imports numba, which not every reader needs

        filter_ = RecordFilter(search.key, search.contains)
        for piece in self.reader.scan(topic, partition, *extent, isolation=isolation, tier=tier):
            for batch in records(
                piece, topic, partition, record_filter=filter_, looked=search.looked, milliseconds=True
            ):
                yield batch, piece.tier
            search.reach(min(piece.next_offset, extent.end))


class ConsumerSource:
    """Reads the local tier only, through Kafka's own client, which also decodes."""

    def __init__(self, consumer: PlainConsumer) -> None:
        self._consumer = consumer

    def partitions(self, topic: str) -> list[int]:
        return self._consumer.partitions(topic)

    def extent(self, topic: str, partition: int, isolation: Isolation, tier: Tier) -> Extent:
        """Return the offsets that can be read. The isolation is the consumer's own."""
        return Extent(*self._consumer.bounds(topic, partition))

    def first_at(self, topic: str, partition: int, timestamp: TimestampMs) -> Offset | None:
        return self._consumer.first_at(topic, partition, timestamp)

    def records(
        self,
        topic: str,
        partition: int,
        extent: Extent,
        isolation: Isolation,
        tier: Tier,
        *,
        columns: Sequence[str] | None = None,
    ) -> Generator[tuple[pa.RecordBatch, Tier], None, None]:
        for batch in self._consumer.records(topic, partition, *extent):
            whole = as_arrow(batch, topic, partition)
            yield whole if columns is None else whole.select(list(columns)), Tier.LOCAL


def as_arrow(batch: list[PlainRecord], topic: str, partition: int) -> pa.RecordBatch:
    """Return the records in the decoder's schema."""
    import pyarrow as pa

    from ..log.record_columns import RECORD_SCHEMA

    count = len(batch)
    columns = {
        "key": [record.key for record in batch],
        "value": [record.value for record in batch],
        "topic": [topic] * count,
        "partition": [partition] * count,
        "offset": [record.offset for record in batch],
        "timestamp": [record.timestamp for record in batch],
        "timestampType": [record.timestamp_type for record in batch],
        "headers": [[{"key": name, "value": value} for name, value in record.headers] for record in batch],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in RECORD_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)
