"""Read one offset range of one partition from both tiers: the simplest Python interface."""

from __future__ import annotations

from collections.abc import Generator, Mapping

import pyarrow as pa

from ..app.opening.connection import FOR_READERS, STORE
from ..app.opening.open import open_connection
from ..fetch.gone import place_of
from ..fetch.reader import records
from ..runtime.settings import Settings
from ..runtime.settings_load import settings_from
from ..state.routing import Isolation
from .connect import agreed, require_mapping


def read_records(
    kafka: Mapping[str, str],
    store: str,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    isolation: str = "read_committed",
    settings: Mapping[str, object] | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield exactly the records of the offsets ``[start, end)``, in order, from both tiers.

    ``topic``: the topic's name, or the topic id of a deleted topic. ``kafka``: librdkafka properties. ``store``:
    ``file:///folder``, ``s3://bucket/prefix``, … ``settings``: other settings, by their names in docs/settings.md, as
    ``{"store.endpoint": "https://…", "encryption.keyring": "/path"}``. With ``{"view.source": "bucket"}`` no request
    goes to a broker and ``kafka`` may be empty. The remote tier is then read by the view in the bucket, whose age is
    logged first, or by an earlier view (``view.as_of``). Columns are those of Spark's Kafka source: key, value
    (binary), topic, partition, offset, timestamp (milliseconds, UTC), timestampType, headers. The first batch opens the
    connection. It is closed when the iterator ends or is closed.

    Raises UnknownTopic, OffsetOutOfRange (the log lacks a part of the range), LogGap, CorruptData, AccessDenied,
    Unavailable and InvalidSettings. Raises InvalidRequest if two arguments give different values for one setting, or if
    ``kafka`` or ``settings`` is not a mapping. Raises ValueError for an unknown ``isolation``. A result is never
    truncated silently: it lacks only offsets of accepted gaps.
    """
    level = Isolation(isolation)
    require_mapping("kafka", kafka, '{"bootstrap.servers": "host:9092"}')
    require_mapping("settings", settings, '{"store.endpoint": "https://…"}')
    by_kafka = {f"kafka.{name}": value for name, value in kafka.items()}
    chosen = agreed({"settings": settings or {}, "kafka": by_kafka, "store": {STORE: store}})
    return _records(settings_from({**FOR_READERS, **chosen}), topic, partition, start, end, level)


def _records(
    settings: Settings, topic: str, partition: int, start: int, end: int, isolation: Isolation
) -> Generator[pa.RecordBatch, None, None]:
    with open_connection(settings) as connection:
        place = place_of(connection.control, topic, partition)
        reader = connection.reader(connection.view([place]))
        for piece in reader.scan(topic, partition, start, end, isolation=isolation):
            yield from records(piece, topic, partition, milliseconds=True)
