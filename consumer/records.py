"""Records of one range of one partition, from both tiers: the smallest way to read tierstate from Python."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pyarrow as pa

from ..broker.open import open_broker
from ..broker.tier_topic_setup import TierTopicSpec, open_tier_topic
from ..fetch.gone import place_of
from ..fetch.open import open_reader
from ..fetch.reader import records
from ..follower.open import open_view
from ..runtime.clock import SystemClock
from ..state.keys import tier_partition_of
from ..state.routing import Isolation
from ..storage.open import open_store
from ..storage.segment.keyring import KeyRing


def read_records(
    kafka: Mapping[str, str],
    store: str,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    isolation: str = "read_committed",
    endpoint: str | None = None,
    region: str | None = None,
    keyring: Path | None = None,
    tier_state_topic: str = "_tier-state",
) -> Generator[pa.RecordBatch, None, None]:
    """Exactly the records of the offsets ``[start, end)``, in order, whichever tier holds them.

    ``topic``: its name or, once the cluster has it no more, its topic id. ``kafka``: librdkafka properties. ``store``:
    ``file:///folder`` or ``s3://bucket/prefix`` with ``endpoint`` and ``region``. Columns as Spark's Kafka source has
    them: key, value (binary), topic, partition, offset, timestamp (microseconds, UTC), timestampType, headers. Nothing
    is opened before the first batch is asked for; everything is closed when the iterator ends or is closed.

    Raises UnknownTopic, OffsetOutOfRange (the log does not hold all of the range), LogGap, CorruptData, AccessDenied,
    Unavailable; ValueError for an isolation that is none. A short answer is never an answer.
    """
    level = Isolation(isolation)
    return _records(kafka, store, topic, partition, (start, end), level, (endpoint, region), keyring, tier_state_topic)


def _records(
    kafka: Mapping[str, str],
    store: str,
    topic: str,
    partition: int,
    offsets: tuple[int, int],
    isolation: Isolation,
    endpoint: tuple[str | None, str | None],
    keyring: Path | None,
    tier_state_topic: str,
) -> Generator[pa.RecordBatch, None, None]:
    clock = SystemClock()
    with ExitStack() as opened:
        broker = opened.enter_context(open_broker(kafka, clock))
        place = place_of(broker.control, topic, partition)
        # a reader can do without the promises that writers need of this topic: replicas and in-sync replicas
        facts = opened.enter_context(closing(open_tier_topic(kafka, TierTopicSpec(tier_state_topic, 1, 1))))
        number = tier_partition_of(place, facts.mapped_partitions)
        cluster_id = broker.control.cluster().cluster_id
        view = opened.enter_context(closing(open_view(facts, cluster_id, clock, tier_partitions=[number])))
        view.require_fresh(number, 0.0)
        objects = opened.enter_context(
            closing(open_store(store, endpoint=endpoint[0], region=endpoint[1], clock=clock))
        )
        keys = KeyRing.load(keyring) if keyring else None
        reader = opened.enter_context(closing(open_reader(view, broker, objects, clock=clock, keys=keys)))
        for piece in reader.scan(topic, partition, *offsets, isolation=isolation):
            yield from records(piece, topic, partition)
