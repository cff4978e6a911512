"""Wires all clients of one Kafka cluster into one object, from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ..runtime.clock import Clock, SystemClock
from .control import KafkaControl
from .kafka_access import access_of
from .local_reads import LocalReader
from .raw import RawClient


@dataclass(frozen=True, slots=True)
class Broker:
    """One cluster: ``control`` to describe and truncate it, ``reads`` for the local tier. Close it when done."""

    control: KafkaControl
    reads: LocalReader
    raw: RawClient

    def close(self) -> None:
        self.raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def open_broker(kafka: Mapping[str, str], clock: Clock | None = None) -> Broker:
    """Wire a `Broker`, without connecting yet. ``kafka``: the settings' ``[kafka]`` table, librdkafka properties.

    Raises InvalidRequest when the addresses or the TLS files cannot be used.
    """
    clock = clock or SystemClock()
    raw = RawClient(access_of(kafka), clock)
    reads = LocalReader(raw, clock)
    return Broker(KafkaControl(raw, reads), reads, raw)
