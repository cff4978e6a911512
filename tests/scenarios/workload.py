"""The same batches to several topics: the result in Kafka, or in another tier, is the oracle for ours.

A batch holds the records queued when a producer flushes, and nothing follows the end of a transaction before its
markers are written; so two topics hold equal bytes but for one thing: a marker carries the time at which the broker
wrote it (`without_marker_times`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tierstate.log.batch import iter_batches

PER_BATCH = 8
VALUE_BYTES = 700
BASE_TIMESTAMP = slice(27, 35)
MAX_TIMESTAMP = slice(35, 43)
CRC = slice(17, 21)
"""The CRC of a batch of format v2."""


class Workload:
    """Idempotent and transactional producers, the only writers of partition 0 of every topic."""

    def __init__(self, bootstrap: str, topics: Sequence[str], seed: int, codecs: Sequence[str] = ("zstd",)) -> None:
        """``codecs`` are used in turn for batches without a transaction; with several, the values shrink under each."""
        self.topics = topics
        self._random = random.Random(seed)
        self._number = 0
        self._repeated = 2 if len(codecs) > 1 else 1
        config = {"group.id": f"watch-{topics[0]}", "isolation.level": "read_uncommitted"}  # else the end is the LSO
        self._watch: Any = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **config})
        self.end = 0
        common = {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 20_000}  # nothing is sent before a flush
        idempotent = {**common, "enable.idempotence": True}
        self._plain: Any = cycle([Producer({**idempotent, "compression.type": codec}) for codec in codecs])
        self._writers: list[Any] = [
            Producer({**common, "transactional.id": f"{topics[0]}-{number}"}) for number in range(2)
        ]
        for writer in self._writers:
            writer.init_transactions(30)

    def plain(self, batches: int, at_ms: int) -> None:
        """Write records of about this time, which goes back and forth."""
        for _ in range(batches):
            self._batch(next(self._plain), at_ms)

    def transactions(self, rounds: int, at_ms: int) -> None:
        """Write interleaved transactions; every third is aborted, and the first stays open until the others end."""
        slow, quick = self._writers
        slow.begin_transaction()
        self._batch(slow, at_ms)
        for number in range(rounds):
            quick.begin_transaction()
            for _ in range(2):
                self._batch(quick, at_ms)
                self._batch(next(self._plain), at_ms)
            if number % 3 == 1:
                quick.abort_transaction(30)
            else:
                quick.commit_transaction(30)
            self._await_markers()
        self._batch(slow, at_ms)
        slow.abort_transaction(30)
        self._await_markers()

    def close(self) -> None:
        self._watch.close()

    def _batch(self, producer: Any, at_ms: int) -> None:
        for _ in range(PER_BATCH):
            self._number += 1
            record = self._record(at_ms)
            for topic in self.topics:
                producer.produce(topic, partition=0, on_delivery=self._delivered, **record)
        assert producer.flush(30) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.end = max(self.end, message.offset() + 1)

    def _await_markers(self) -> None:
        """Wait for the markers: the coordinator writes them after it has answered the producer."""
        self.end += 1
        deadline = time.monotonic() + 30
        while self._ends() != [self.end] * len(self.topics):
            assert time.monotonic() < deadline, (self._ends(), self.end)
            time.sleep(0.005)

    def _ends(self) -> list[int]:
        places = [TopicPartition(topic, 0) for topic in self.topics]
        return [self._watch.get_watermark_offsets(place, timeout=10, cached=False)[1] for place in places]

    def _record(self, at_ms: int) -> dict[str, Any]:
        """Return null keys, null and empty values, headers without a value: all in turn."""
        number = self._number
        value = (
            None
            if number % 11 == 0
            else b""
            if number % 13 == 0
            else self._random.randbytes(VALUE_BYTES // self._repeated) * self._repeated
        )
        headers = [("number", b"%d" % number), ("nothing", None), ("number", b"")] if number % 5 == 0 else None
        return {
            "key": None if number % 7 == 0 else b"key %d" % (number % 17),
            "value": value,
            "headers": headers,
            "timestamp": at_ms + number * 10 - (number % 4) * 25,
        }


def without_marker_times(log: bytes) -> bytes:
    """Return a segment with the times, and so the checksums, of its control batches blanked."""
    blanked = bytearray(log)
    for batch in iter_batches(log, source="segment"):
        if batch.is_control:
            for field in (CRC, BASE_TIMESTAMP, MAX_TIMESTAMP):
                place = slice(batch.position + field.start, batch.position + field.stop)
                blanked[place] = bytes(field.stop - field.start)
    return bytes(blanked)


def max_timestamp(log: bytes, *, control: bool) -> int:
    """Return the maximum over all batches, or over those that are not control batches; -1 if there is none."""
    batches = [batch for batch in iter_batches(log, source="segment") if control or not batch.is_control]
    return max((batch.max_timestamp for batch in batches), default=-1)
