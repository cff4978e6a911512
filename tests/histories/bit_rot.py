"""Bits flip in the bucket while the broker still has what the object replaces; some are put right again."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tierstate.leader.trimmer import PROVEN_FOR_S
from tierstate.rules.missing import objects_of
from tierstate.state.offsets import OffsetRange

if TYPE_CHECKING:
    from tests.histories.world import World

CHANCE, FLIPS, MENDED = 0.2, 0.08, 0.02
"""Of a history, and of one of its steps."""


@dataclass(frozen=True, slots=True)
class Flipped:
    """An object with a flipped bit. ``good``: what was sent. ``at_ms``: since when, by the world's clock."""

    good: bytes
    offsets: OffsetRange
    at_ms: int


class BitRot:
    """``active``: in this history it happens. All chances are its own: other histories stay as they are."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.active = Random(f"bit rot of {world.seed}").random() < CHANCE
        self._flipped: dict[str, Flipped] = {}

    def step(self) -> None:
        """Before a step of the history."""
        world = self._world
        if not self.active or world.store.active or not world.cluster.exists:
            return
        rnd = Random(f"bit rot of {world.seed} at {world.now}")
        if self._flipped and rnd.random() < MENDED:
            key = rnd.choice(sorted(self._flipped))
            world.store.rot(key, self._flipped.pop(key).good)
        local_start = world.cluster.leader.start
        local = [each for each in world.promises.live.view().readable if each.offsets.start >= local_start]
        if not local or rnd.random() >= FLIPS:
            return
        segment = rnd.choice(local[:2])  # the next ones to be trimmed
        key = rnd.choice([key for key, size in objects_of(segment).items() if size])
        good = world.store.held(key)
        if good is None or key in self._flipped:
            return
        self._flipped[key] = Flipped(good, segment.offsets, world.clock.now_ms())
        at = rnd.randrange(len(good))
        world.store.rot(key, good[:at] + bytes([good[at] ^ 1 << rnd.randrange(8)]) + good[at + 1 :])
        world.seen["bit flipped"] += 1

    def sent(self, key: str, data: bytes) -> bytes:
        """What was stored under the key, whatever became of it."""
        return self._flipped[key].good if key in self._flipped else data

    def replacing(self, before: int) -> list[str]:
        """Objects that a trim would have to rely on, flipped for so long that no proof of them holds."""
        start, latest = self._world.cluster.leader.start, self._world.clock.now_ms() - 1000 * PROVEN_FOR_S
        return [
            key
            for key, each in self._flipped.items()
            if each.offsets.end >= start and each.offsets.start < before and each.at_ms < latest
        ]
