"""How one process follows the tier-state topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..runtime.listener import Listener, ignore
from .interest import Keep
from .rebuild import Seed


@dataclass(frozen=True, slots=True)
class Following:
    """``tier_partitions``: None means all of them. ``keep``: which partitions' facts are wanted here (None: all), see
    `Follower.reconsider`. ``seed``: fills an empty view from a checkpoint. ``tail`` False: no thread;
    `Follower.advance`, `wait_applied` and `require_fresh` iterate themselves, and raise ViewBehind at once when records
    stop coming. ``poll_s``: a tail ends after this time at most. ``listener``: gets what was applied and rebuilt.
    """

    tier_partitions: Iterable[int] | None = None
    keep: Keep | None = None
    seed: Seed | None = None
    tail: bool = True
    poll_s: float = 0.5
    listener: Listener = ignore


EVERYTHING = Following()
