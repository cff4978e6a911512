"""Records of one range of one partition, from both tiers: the smallest way to read tierstate from Python."""

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
    """Yield exactly the records of the offsets ``[start, end)``, in order, from the tiers that hold them.

    ``topic``: its name or, after the cluster deleted it, its topic id. ``kafka``: librdkafka properties. ``store``:
    ``file:///folder``, ``s3://bucket/prefix``, … ``settings``: any others, by their names in docs/settings.md, as
    ``{"store.endpoint": "https://…", "encryption.keyring": "/path"}``. With ``{"view.source": "bucket"}`` no broker is
    asked and ``kafka`` may be empty: the remote tier is read by the bucket's own view, whose age is logged first, or by
    an earlier one (``view.as_of``). Columns are those of Spark's Kafka source: key, value (binary), topic, partition,
    offset, timestamp (milliseconds, UTC), timestampType, headers. Nothing is opened before the first batch is
    requested; everything is closed when the iterator ends or is closed.

    Raises UnknownTopic, OffsetOutOfRange (the log does not hold all of the range), LogGap, CorruptData, AccessDenied,
    Unavailable; InvalidSettings; InvalidRequest if ``settings`` and ``kafka`` or ``store`` give two values for one
    setting, or are no mappings; ValueError for an unknown isolation. An answer is never cut short: it lacks only
    offsets that a person accepted as lost.
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
