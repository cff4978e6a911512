"""Split a consumer's configuration into properties of Kafka's consumer and settings of tierstate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..app.opening.connection import FOR_READERS
from ..runtime.settings import Settings
from ..runtime.settings_load import settings_from
from ..state.errors import InvalidSettings
from ..state.routing import Isolation, Tier

MODE = "tiered.mode"
CACHE: dict[str, object] = {"cache.memory": 64 * 2**20, "cache.prefetch": 0}
"""Defaults of a consumer: less cache than a gateway, and no prefetch into it, because `RemoteRuns` reads ahead."""
PREFIX = "tierstate."
CONNECTING = (
    "bootstrap.servers",
    "metadata.broker.list",
    "security.protocol",
    "client.id",
    "sasl.",
    "ssl.",
    "https.ca.",
    "socket.",
    "broker.address.",
)
"""Prefixes of connection properties. tierstate's Kafka clients use these too. Others concern groups and fetches."""
RESETS = {
    "smallest": "earliest",
    "earliest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "latest": "latest",
    "end": "latest",
    "error": "error",
}


class Mode(StrEnum):
    """The values of ``tiered.mode``: which tier serves a record that both have, and whether the other tier is read."""

    KAFKA_ONLY = "kafka_only"
    KAFKA_PREFERRED = "kafka_preferred"
    TIERED_STORAGE_PREFERRED = "tiered_storage_preferred"
    TIERED_STORAGE_ONLY = "tiered_storage_only"

    @property
    def tier(self) -> Tier:
        """Return the tier to pass to `route`."""
        return _TIERS[self]


_TIERS = {
    Mode.KAFKA_ONLY: Tier.LOCAL,
    Mode.KAFKA_PREFERRED: Tier.AUTO,
    Mode.TIERED_STORAGE_PREFERRED: Tier.PREFER_REMOTE,
    Mode.TIERED_STORAGE_ONLY: Tier.REMOTE,
}


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """A checked configuration. ``kafka``: properties of Kafka's consumer. ``settings``: None for `Mode.KAFKA_ONLY`.
    ``reset``: earliest, latest or error. ``stores``: a record's offset is stored when it is handed out. ``eager``:
    a rebalance revokes all partitions before it assigns. ``tells_end``: ``enable.partition.eof``.
    """

    mode: Mode
    kafka: dict[str, Any]
    settings: Settings | None
    isolation: Isolation
    reset: str
    stores: bool
    eager: bool
    tells_end: bool
    error_cb: Callable[[Any], None] | None


def consumer_config(config: Mapping[str, Any]) -> ConsumerConfig:
    """Return the checked configuration. Raises InvalidSettings, which names the wrong keys."""
    kafka = {key: value for key, value in config.items() if key != MODE and not key.startswith(PREFIX)}
    mode = _chosen(config, MODE, "kafka_preferred", {each: each for each in Mode})
    stores = _flag(kafka, "enable.auto.offset.store", True)
    reset = _chosen(kafka, "auto.offset.reset", "error", RESETS)
    assignors = str(kafka.get("partition.assignment.strategy", "range,roundrobin"))
    settings = None
    if mode is not Mode.KAFKA_ONLY:
        settings = settings_from(_for_tierstate(config, kafka), lambda key: f"{PREFIX}{key}")
        if not settings.store.url:
            raise InvalidSettings([f"{PREFIX}store.url: missing; or {MODE}=kafka_only"])
        kafka |= {"auto.offset.reset": "error", "enable.auto.offset.store": False}
    return ConsumerConfig(
        mode=mode,
        kafka=kafka,
        settings=settings,
        isolation=Isolation(_chosen(kafka, "isolation.level", "read_committed", {each: each for each in Isolation})),
        reset=reset,
        stores=stores,
        eager="cooperative" not in assignors and str(kafka.get("group.protocol", "classic")).lower() != "consumer",
        tells_end=_flag(kafka, "enable.partition.eof", False),
        error_cb=kafka.get("error_cb"),
    )


def _for_tierstate(config: Mapping[str, Any], kafka: Mapping[str, Any]) -> dict[str, object]:
    own = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
    reaching = {f"kafka.{key}": value for key, value in kafka.items() if key.startswith(CONNECTING)}
    return {
        **FOR_READERS,
        **CACHE,
        **{key: value for key, value in reaching.items() if not callable(value)},
        **own,
    }


def _chosen(config: Mapping[str, Any], key: str, default: str, choices: Mapping[str, Any]) -> Any:
    value = str(config.get(key, default))
    if value not in choices:
        raise InvalidSettings([f"{key}: {value} is none of {', '.join(choices)}"])
    return choices[value]


def _flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    return str(config.get(key, default)).lower() in ("true", "1")
