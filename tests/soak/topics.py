"""The topics of a soak, and the settings that make much happen in minutes."""

from __future__ import annotations

from dataclasses import dataclass

EVERYWHERE = (0, 1, 2)
SWEEP_GRACE_S = 15
KEPT_MS, PASSING_MS = 30 * 60_000, 60_000
SEGMENT_BYTES = 60_000
COPY_QUOTA = 45_000
"""Of one agent, less than a segment: a copy takes a moment, so that some are under way whenever something happens."""


@dataclass(frozen=True)
class SoakTopic:
    """``retention_ms``: the shortest it ever has."""

    short: str
    partitions: int
    retention_ms: int
    rate: float
    transactional: bool = False


TOPICS = (
    SoakTopic("kept", 3, KEPT_MS, 45),
    SoakTopic("passing", 2, PASSING_MS, 20),
    SoakTopic("paid", 2, KEPT_MS, 20, transactional=True),
)
