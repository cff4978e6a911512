"""The view that routes a read: seconds old, or older if the tier-state topic or disk space is unavailable, to a limit.

An unavailable topic is asked again only every `ASK_AGAIN_S` seconds, because a read waits for the attempt's timeout. An
old view causes no false errors: only a current view can prove a gap, a missing object or an offset out of range. An old
view serves no branch that an unclean election has lost since. The new leader's epoch has no term in this view, so the
leader must confirm the lineage (`state/routing.py`). One limit remains: the view does not know a log start that moved
since.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ..runtime.clock import Clock
from ..state.errors import BrokerUnavailable, DiskFull, ViewBehind
from ..state.view import TierView

VIEW_AGE_S = 5.0
"""The highest age in seconds of a view that routes a remote read. Expiry's grace (``expire.grace``) is far above it."""
ASK_AGAIN_S = 30.0
"""Seconds for which a tier-state partition that did not answer is not asked again."""


@dataclass(frozen=True, slots=True)
class _Away:
    """A tier-state partition that does not answer. ``too_old``: the view is also too old to route reads."""

    ask_again: float
    because: BrokerUnavailable
    too_old: bool = False


class RecentViews:
    """The age checks for every tier-state partition. Thread-safe."""

    def __init__(self, view: TierView, clock: Clock) -> None:
        self._view, self._clock = view, clock
        self._lock = threading.Lock()
        self._away: dict[int, _Away] = {}

    def require(self, tier_partition: int) -> None:
        """Require a view at most `VIEW_AGE_S` old, or a ready one while the topic is unavailable or the disk is full.

        Raises ViewBehind, and DiskFull if the view is too old.
        """
        with self._lock:
            away = self._away.get(tier_partition)
        if away is None or self._clock.monotonic() >= away.ask_again:
            away = None
            try:
                self._view.require_fresh(tier_partition, VIEW_AGE_S)
            except BrokerUnavailable as error:
                away = _Away(self._clock.monotonic() + ASK_AGAIN_S, error)
            except DiskFull:  # raised without a wait
                self._view.require_ready(tier_partition)
        if away is not None and not away.too_old:
            try:
                self._view.require_ready(tier_partition)
            except BrokerUnavailable as error:
                away = _Away(self._clock.monotonic() + ASK_AGAIN_S, error, too_old=True)
        with self._lock:
            if away is None:
                self._away.pop(tier_partition, None)
            else:
                self._away[tier_partition] = away
        if away is not None and away.too_old:
            raise ViewBehind(
                "the tier-state topic is away, and the view is too old to read by",
                tier_partition=tier_partition,
                reason=away.because,
            ) from away.because
