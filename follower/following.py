"""The options with which one process follows the tier-state topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..runtime.listener import Listener, ignore
from .interest import Keep
from .rebuild import Seed


@dataclass(frozen=True, slots=True)
class Following:
    """``tier_partitions``: None means all. ``keep`` selects the partitions whose facts are kept; None means all.
    ``seed`` fills an empty view from a checkpoint. ``tail``: run a thread. Without a thread, `Follower.advance`,
    `wait_applied` and `require_fresh` iterate; the last two raise ViewBehind as soon as an iteration changes nothing.
    ``poll_s``: longest wait of one poll of the thread. ``listener`` receives the events about facts and rebuilds.
    """

    tier_partitions: Iterable[int] | None = None
    keep: Keep | None = None
    seed: Seed | None = None
    tail: bool = True
    poll_s: float = 0.5
    listener: Listener = ignore


EVERYTHING = Following()
