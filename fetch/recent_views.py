"""The view that a read is routed by: seconds old, and while the tier-state topic is away as old as it may be at all.

A topic that is away is asked again only now and then: each time takes as long as its patience, and somebody waits.
An old view makes no errors up: whatever looks like a gap, a missing object or an offset out of range is judged by a
view of this very moment, and there is none. Nor is a branch served that an unclean election lost meanwhile: the new
leader's epoch has no term in this view, so the leader itself must confirm what is read (`state/routing.py`).
What is left: a log start that moved meanwhile is not known.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ..runtime.clock import Clock
from ..state.errors import BrokerUnavailable, ViewBehind
from ..state.view import TierView

VIEW_AGE_S = 5.0
"""How old a view may be that a remote read is routed by. Expiry's grace (``expire.grace``) is far above it."""
ASK_AGAIN_S = 30.0
"""How long nobody asks a tier-state partition that did not answer."""


@dataclass(frozen=True, slots=True)
class _Away:
    """``too_old``: so is the view by now."""

    ask_again: float
    because: BrokerUnavailable
    too_old: bool = False


class RecentViews:
    """Of every tier-state partition. Thread-safe."""

    def __init__(self, view: TierView, clock: Clock) -> None:
        self._view, self._clock = view, clock
        self._lock = threading.Lock()
        self._away: dict[int, _Away] = {}

    def require(self, tier_partition: int) -> None:
        """At most `VIEW_AGE_S` old, or ready while the topic is away. Raises ViewBehind."""
        with self._lock:
            away = self._away.get(tier_partition)
        if away is None or self._clock.monotonic() >= away.ask_again:
            try:
                self._view.require_fresh(tier_partition, VIEW_AGE_S)
            except BrokerUnavailable as error:
                away = _Away(self._clock.monotonic() + ASK_AGAIN_S, error)
            else:
                away = None
        if away is not None and not away.too_old:
            away = self._or_too_old(tier_partition, away)
        self._remember(tier_partition, away)
        if away is not None and away.too_old:
            raise ViewBehind(
                "the tier-state topic is away, and the view is too old to read by",
                tier_partition=tier_partition,
                reason=away.because,
            ) from away.because

    def _or_too_old(self, tier_partition: int, away: _Away) -> _Away:
        try:
            self._view.require_ready(tier_partition)
        except BrokerUnavailable as error:
            return _Away(self._clock.monotonic() + ASK_AGAIN_S, error, too_old=True)
        return away

    def _remember(self, tier_partition: int, away: _Away | None) -> None:
        with self._lock:
            if away is None:
                self._away.pop(tier_partition, None)
            else:
                self._away[tier_partition] = away
