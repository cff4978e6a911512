"""Clients in Python: librdkafka, kafka-python and aiokafka. Rows: partition, offset, time, key, value, headers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from tests.proxy.starts import At, Earliest, Group, Read, Start, Time
from tierstate.state.routing import Isolation

Rows = list[tuple[Any, ...]]
PATIENCE_S = 60.0
PER_POLL = 100


class Progress:
    """The rows of a client, and whether they are enough: to the end of each partition, or what a member reads."""

    def __init__(self, start: Start) -> None:
        self.rows: Rows = []
        self._records = start.records if isinstance(start, Group) else None
        self._latest = time.monotonic()

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add the rows of a poll. Fail the test if there are none for `PATIENCE_S` seconds."""
        before = len(self.rows)
        self.rows += rows
        if len(self.rows) > before:
            self._latest = time.monotonic()
        assert time.monotonic() - self._latest < PATIENCE_S, f"no record comes after {before}"

    @property
    def enough(self) -> bool:
        """Return whether a member of a group has read its number of records."""
        return self._records is not None and len(self.rows) >= self._records


def by_kafka_python(bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    return [kafka_python_rows(bootstrap, {"isolation_level": str(isolation)}, *read) for read in reads]


def kafka_python_rows(bootstrap: str, config: dict[str, Any], topic: str, start: Start) -> Rows:
    """Read with the release of kafka-python that is imported: a newer one, or 2.0.2 in a process of its own."""
    from kafka import KafkaConsumer, TopicPartition

    progress = Progress(start)
    group = start.name if isinstance(start, Group) else None
    reset = "none" if group is None else "earliest"
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset=reset,
        enable_auto_commit=False,
        max_poll_records=PER_POLL,
        **config,
    )
    with closing(consumer):
        places = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        ends = consumer.end_offsets(places)
        if group is None:
            consumer.assign(places)
        else:
            consumer.subscribe([topic])
        match start:
            case Earliest():
                for place, offset in consumer.beginning_offsets(places).items():
                    consumer.seek(place, offset)
            case At(offsets):
                for place in places:
                    consumer.seek(place, offsets[place.partition])
            case Time(ms):
                for place, found in consumer.offsets_for_times(dict.fromkeys(places, ms)).items():
                    consumer.seek(place, found.offset)

        def at_end() -> bool:
            assigned = consumer.assignment()
            return bool(assigned) and all(consumer.position(place) >= ends[place] for place in assigned)

        while not (progress.enough or at_end()):
            progress.add(
                (each.partition, each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
                for records in consumer.poll(1_000).values()
                for each in records
            )
        if group is not None:
            consumer.commit()
    return sorted(progress.rows, key=lambda row: row[:2])


def by_aiokafka(bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    return [asyncio.run(_aiokafka(bootstrap, isolation, *read)) for read in reads]


async def _aiokafka(bootstrap: str, isolation: Isolation, topic: str, start: Start) -> Rows:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    progress = Progress(start)
    group = start.name if isinstance(start, Group) else None
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level=str(isolation),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        places = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        ends = await consumer.end_offsets(places)
        match start:
            case At(offsets):
                for place in places:
                    consumer.seek(place, offsets[place.partition])
            case Time(ms):
                for place, found in (await consumer.offsets_for_times(dict.fromkeys(places, ms))).items():
                    consumer.seek(place, found.offset)

        async def at_end() -> bool:
            assigned = consumer.assignment()
            return bool(assigned) and all([await consumer.position(place) >= ends[place] for place in assigned])

        while not (progress.enough or await at_end()):
            progress.add(
                (each.partition, each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
                for records in (await consumer.getmany(timeout_ms=1_000, max_records=PER_POLL)).values()
                for each in records
            )
        if group is not None:
            await consumer.commit()
    return sorted(progress.rows, key=lambda row: row[:2])


def by_confluent(bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    return [_confluent(bootstrap, isolation, *read) for read in reads]


def _confluent(bootstrap: str, isolation: Isolation, topic: str, start: Start) -> Rows:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    progress = Progress(start)
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": start.name if isinstance(start, Group) else f"{topic}-unused",
        "isolation.level": str(isolation),
        "auto.offset.reset": "earliest" if isinstance(start, Group) else "error",
        "enable.auto.commit": False,
    }
    with closing(Consumer(config)) as consumer:
        numbers = sorted(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=20)[1] for n in numbers}
        match start:
            case Earliest():
                consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
            case At(offsets):
                consumer.assign([TopicPartition(topic, number, offsets[number]) for number in numbers])
            case Time(ms):
                consumer.assign(consumer.offsets_for_times([TopicPartition(topic, n, ms) for n in numbers], 20))
            case Group():
                consumer.subscribe([topic])

        def at_end() -> bool:
            last = {row[0]: row[1] for row in progress.rows}
            return all(last.get(number, -1) + 1 >= end for number, end in ends.items())

        while not (progress.enough or at_end()):
            messages = consumer.consume(PER_POLL, 1.0)
            errors = [each.error() for each in messages if each.error() is not None]
            assert not errors, errors
            progress.add(
                (m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ()))
                for m in messages
            )
        if isinstance(start, Group):
            consumer.commit(asynchronous=False)
    return sorted(progress.rows, key=lambda row: row[:2])
