"""Wires all clients of one Kafka cluster into one object, from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient

from ..runtime.clock import Clock, SystemClock
from .client_config import admin_config
from .control import KafkaControl
from .kafka_access import access_of
from .leadership import Leadership
from .live_client import LiveClient
from .local_reads import LocalReader
from .raw import RawClient


@dataclass(frozen=True, slots=True)
class Broker:
    """One cluster: ``control`` to describe and truncate it, ``reads`` for the local tier. Close it when done."""

    control: KafkaControl
    reads: LocalReader
    leadership: Leadership
    raw: RawClient

    @property
    def admin(self) -> AdminClient:
        """librdkafka's current client. Raises BrokerUnavailable once this is closed."""
        return self.control.admin

    def close(self) -> None:
        self.control.close()
        self.raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_broker(kafka: Mapping[str, str], clock: Clock | None = None) -> Broker:
    """Wire a `Broker`, without connecting yet. ``kafka``: the settings' ``[kafka]`` table, librdkafka properties.

    Raises InvalidRequest when the addresses or the TLS files cannot be used.
    """
    clock = clock or SystemClock()
    kafka = access_of(kafka)
    raw = RawClient(kafka, clock)
    admin = LiveClient(kafka, AdminClient, admin_config)
    leadership = Leadership(raw, clock)
    return Broker(KafkaControl(raw, admin, leadership), LocalReader(raw, leadership), leadership, raw)
