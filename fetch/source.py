"""One protocol for sources of records: `LogReader` of both tiers, the gateway's client, or Kafka's own client.

`consume` and `digest` use it, so only the source differs if they read the same records in two ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..state.offsets import Extent, Offset, TimestampMs
from ..state.routing import Isolation, Tier
from .piece import Batches, Names, Search

if TYPE_CHECKING:
    import pyarrow as pa

    from ..broker.plain_reads import PlainConsumer, PlainRecord


class RecordSource(Protocol):
    """A way to read records. Raises UnknownTopic, OffsetOutOfRange, LogGap, CorruptData, Unavailable."""

    def partitions(self, topic: str) -> list[int]:
        """Return the partition numbers, ascending."""

    def extent(self, topic: str, partition: int, isolation: Isolation, tier: Tier) -> Extent:
        """Return the offsets that can be read now."""

    def first_at(self, topic: str, partition: int, timestamp: TimestampMs) -> Offset | None:
        """Return the offset of the first record at or after a time, or None."""

    def records(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, tier: Tier, *, columns: Names = None
    ) -> Batches:
        """Yield exactly the records of ``extent``, and the tier that served each batch.

        ``columns``: those of `record_schema` to yield, in this order; None: all. Others are not decoded.
        Closing the generator stops reading ahead.
        """


class SearchedSource(RecordSource, Protocol):
    """A source that also searches for records."""

    def search_records(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, tier: Tier, search: Search
    ) -> Batches:
        """Yield, like `RecordSource.records`, only records that match ``search``. A batch may be empty."""


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
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, tier: Tier, *, columns: Names = None
    ) -> Batches:
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
