"""The topic settings that tierstate uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

_PREFIXES = {"timestamp_type": "message."}
_OURS = ("remote_ms", "remote_bytes")
LIKE_TOTAL = -2
"""``local.retention.*`` = -2 means the value of the topic's own ``retention.*``."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective settings: the topic's own, else the broker's default. In milliseconds and bytes; -1 is no limit."""

    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    local_retention_ms: int = LIKE_TOTAL
    local_retention_bytes: int = LIKE_TOTAL
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    remote_storage_enable: bool = False
    timestamp_type: str = "CreateTime"
    unclean_leader_election_enable: bool = False
    remote_ms: int | None = None
    """The remote tier's own retention, of tierstate's settings. None: that of the topic. ``remote_bytes``: the same."""
    remote_bytes: int | None = None

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return Kafka's names of all settings that are Kafka's."""
        kafkas = (each.name for each in fields(cls) if each.name not in _OURS)
        return tuple(f"{_PREFIXES.get(name, '')}{name.replace('_', '.')}" for name in kafkas)

    @classmethod
    def of(cls, entries: Mapping[str, str]) -> TopicConfig:
        """Parse settings by Kafka's names. A broker omits a setting that it does not know: then the default applies."""
        default = cls()

        def number(name: str, otherwise: int) -> int:
            return int(entries.get(name, otherwise))

        policy = entries.get("cleanup.policy", "delete")
        return cls(
            retention_ms=number("retention.ms", default.retention_ms),
            retention_bytes=number("retention.bytes", default.retention_bytes),
            local_retention_ms=number("local.retention.ms", LIKE_TOTAL),
            local_retention_bytes=number("local.retention.bytes", LIKE_TOTAL),
            cleanup_policy=frozenset(filter(None, (one.strip() for one in policy.split(",")))),
            remote_storage_enable=entries.get("remote.storage.enable", "false") == "true",
            timestamp_type=entries.get("message.timestamp.type", default.timestamp_type),
            unclean_leader_election_enable=entries.get("unclean.leader.election.enable", "false") == "true",
        )
