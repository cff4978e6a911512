"""A later release ran for a while and was rolled back: it left a fact for which this release has no schema.

A fact that this release may ignore stays for good and changes nothing. A fact that it may not ignore stops every agent
from writing until the upgrade, when the later release erases it. The seed alone decides which fact comes, and when.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.later_release import later_kind
from tierstate.schemas.codec import RELEASE

if TYPE_CHECKING:
    from tests.histories.world import World

MOST_STEPS = 320
LAST, IGNORED, BINDING = 60, "a later fact to ignore", "a later fact that binds"


class LaterRelease:
    """The later release of a history. It leaves a fact in a fifth of the histories."""

    def __init__(self, world: World) -> None:
        self._world, rnd = world, Random(f"later release of {world.seed}")
        self._active, self._ignorable = rnd.random() < 0.2, rnd.random() < 0.3
        self._rolled_back_at = rnd.randrange(MOST_STEPS)
        self._upgraded_at = self._rolled_back_at + rnd.randint(5, LAST)
        self._left = ""
        """The key of the fact that was left."""
        self.key: str | None = None
        """The same key while the fact exists, else None."""

    @property
    def binds(self) -> bool:
        """Return whether a fact exists that may not be ignored. A recovery is refused then, too."""
        return self.key is not None and not self._ignorable

    def step(self) -> None:
        """Write or erase the fact, if it is time."""
        if self.key is None and self._active and self._world.now >= self._rolled_back_at:
            self._active = False
            self.leave(RELEASE if self._ignorable else None)
        elif self.binds and self._world.now >= self._upgraded_at:
            self.upgrade()

    def leave(self, ignorable_since: str | None) -> None:
        """Write a fact of a kind that only a later release knows."""
        self.key, value = later_kind(self._world.cluster.partition, 1, ignorable_since)
        self._left = self.key
        self._world.seen[IGNORED if ignorable_since else BINDING] += 1
        self._world.topic.land_unasked(self.key, value)

    def lose_tail(self) -> None:
        """Follow a cut of the topic's tail: the fact is lost, or exists again if the cut took its tombstone."""
        live = self._world.topic.live_at(len(self._world.topic.log))
        self.key = self._left if self._left in live else None

    def upgrade(self) -> None:
        """Erase the fact, as the release that wrote it may do."""
        assert self.key is not None
        key, self.key = self.key, None
        self._world.topic.land_unasked(key, None)
