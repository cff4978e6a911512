"""The topics of a soak, and the settings that make much happen in minutes."""

from __future__ import annotations

from dataclasses import dataclass, field

EVERYWHERE = (0, 1, 2)
SWEEP_GRACE_S = 15
KEPT_MS, PASSING_MS = 30 * 60_000, 3 * 60_000
"""The longer one is longer than any election, also on a busy machine. On a slow one, records of the shorter one may be
deleted before an agent can copy them.
"""
SEGMENT_BYTES = 60_000
COPY_QUOTA = 45_000
"""The quota of one agent, less than a segment: copies take a moment, so that some are always under way."""


@dataclass(frozen=True)
class SoakTopic:
    """``retention_ms`` is the shortest that it ever has. ``brokers`` hold its replicas, always."""

    short: str
    partitions: int
    retention_ms: int
    rate: float
    transactional: bool = False
    brokers: tuple[int, ...] = EVERYWHERE
    config: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def moves(self) -> bool:
        """Return whether any broker may lead it."""
        return self.brokers == EVERYWHERE


SHAKEN = SoakTopic(
    "shaken",
    1,
    KEPT_MS,
    20,
    brokers=(0, 1),
    config={"unclean_leader_election_enable": "true", "min_insync_replicas": "1"},
)
"""Its writer forgets the records that an unclean election loses."""
LONE = SoakTopic("lone", 1, KEPT_MS, 20, brokers=(2,), config={"min_insync_replicas": "1"})
"""A topic of one replica, whose folder may be lost."""
TOPICS = (
    SoakTopic("kept", 3, KEPT_MS, 45),
    SoakTopic("passing", 2, PASSING_MS, 20),
    SoakTopic("paid", 2, KEPT_MS, 20, transactional=True),
    SHAKEN,
    LONE,
)
