"""Local retention: oldest first, whole segments, by time and by size, never the active one."""

from __future__ import annotations

import pytest

from tierstate.state.local_segments import LocalSegment
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.retention import TopicConfig, TopicRetention, local_retention_end

NOW = TimestampMs(1_000_000)


def log(*segments: tuple[int, int]) -> list[LocalSegment]:
    """Return segments of (size, age in ms); segment n holds offsets 10n..10n+9; the last is active."""
    return [
        LocalSegment(Offset(10 * at), Offset(10 * at + 10), size, TimestampMs(NOW - age))
        for at, (size, age) in enumerate(segments)
    ]


def keep(ms: int = -1, size: int = -1) -> TopicRetention:
    return TopicRetention(-1, -1, ms, size)


@pytest.mark.parametrize(
    ("retention", "end"),
    [
        (keep(), None),
        (keep(ms=400), None),  # exactly as old as allowed stays
        (keep(ms=399), 10),
        (keep(ms=299), 20),
        (keep(ms=0), 30),  # the active one never goes
        (keep(size=401), None),
        (keep(size=301), None),  # what remains would be below the limit
        (keep(size=300), 10),
        (keep(size=200), 20),
        (keep(size=0), 30),
        (keep(ms=299, size=300), 20),  # either
        (keep(ms=399, size=200), 20),
    ],
)
def test_local_retention_lets_go_of_the_oldest_segments(retention: TopicRetention, end: int | None) -> None:
    assert local_retention_end(log((100, 400), (100, 300), (100, 200), (100, 100)), retention, NOW) == end


def test_a_young_segment_protects_what_follows_it() -> None:
    assert local_retention_end(log((1, 10), (1, 900), (1, 0)), keep(ms=100), NOW) is None


def test_bytes_let_go_by_time_count_towards_the_size() -> None:
    assert local_retention_end(log((300, 900), (100, 0), (100, 0)), keep(ms=500, size=200), NOW) == 10


def test_an_empty_or_only_active_log_keeps_everything() -> None:
    assert local_retention_end([], keep(ms=0, size=0), NOW) is None
    assert local_retention_end(log((100, 900)), keep(ms=0, size=0), NOW) is None


@pytest.mark.parametrize(
    ("configured", "effective"),
    [
        ((50, 9, -2, -2), (50, 9, 50, 9)),
        ((-1, -1, -2, -2), (-1, -1, -1, -1)),
        ((50, 9, 5, 7), (50, 9, 5, 7)),
        ((50, 9, -2, 7), (50, 9, 50, 7)),
        ((50, 9, -1, -1), (50, 9, -1, -1)),
    ],
)
def test_local_settings_of_minus_two_mean_the_total(
    configured: tuple[int, int, int, int], effective: tuple[int, int, int, int]
) -> None:
    assert TopicConfig(*configured).retention == TopicRetention(*effective)
    of_remote = TopicConfig(*configured, remote_ms=3, remote_bytes=4).retention
    assert of_remote == TopicRetention(3, 4, *effective[2:])
