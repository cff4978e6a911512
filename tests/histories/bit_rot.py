"""Bits of stored objects flip while the broker still has their records. Some objects are repaired later."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import TYPE_CHECKING

from tierstate.rules.missing import objects_of

if TYPE_CHECKING:
    from tests.histories.world import World

CHANCE, FLIPS, MENDED = 0.2, 0.08, 0.02
"""Chances: that a history has bit rot; that a step flips a bit; that a step repairs an object."""
TRIMMING = ("append trim-intended", "delete-records")


class BitRot:
    """Flips bits in some histories (``active``). A random generator of its own keeps other histories unchanged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.active = Random(f"bit rot of {world.seed}").random() < CHANCE
        self._flipped: dict[str, bytes] = {}
        """Key to original bytes of each object that has a flipped bit."""

    def step(self) -> None:
        """Flip a bit or repair an object now and then. Called before each step of the history."""
        world = self._world
        if not self.active or world.store.active or not world.cluster.exists:
            return
        rnd = Random(f"bit rot of {world.seed} at {world.now}")
        if self._flipped and rnd.random() < MENDED:
            key = rnd.choice(sorted(self._flipped))
            world.store.rot(key, self._flipped.pop(key))
        if any(process.next_step in TRIMMING for process in world.processes):
            return  # a trim has just proven its objects; no check can see a bit that flips before the request
        local_start = world.cluster.leader.start
        local = [each for each in world.promises.live.view().readable if each.offsets.start >= local_start]
        if not local or rnd.random() >= FLIPS:
            return
        segment = rnd.choice(local[:2])  # the next ones to be trimmed
        key = rnd.choice([key for key, size in objects_of(segment).items() if size])
        good = world.store.held(key)
        if good is None or key in self._flipped:
            return
        self._flipped[key] = good
        at = rnd.randrange(len(good))
        world.store.rot(key, good[:at] + bytes([good[at] ^ 1 << rnd.randrange(8)]) + good[at + 1 :])
        world.seen["bit flipped"] += 1

    @property
    def flipped(self) -> Collection[str]:
        """Return the keys of the objects that have a flipped bit now."""
        return self._flipped.keys()

    def end(self) -> None:
        """Repair all objects, and stop flipping bits: a recovery has only the objects."""
        self.active = False
        while self._flipped:
            self._world.store.rot(*self._flipped.popitem())

    def sent(self, key: str, data: bytes) -> bytes:
        """Return the object's original bytes; ``data`` are its present bytes."""
        return self._flipped.get(key, data)

    def replacing(self, before: int) -> list[str]:
        """Return keys of objects with a flipped bit that will be the only copy after a trim below ``before``."""
        start, owned = self._world.cluster.leader.start, self._world.promises.live.view().coverage.owned
        relied_on = {
            key
            for piece in owned
            if piece.offsets.end >= start and piece.offsets.start < before
            for key in objects_of(piece.segment)
        }
        return sorted(relied_on & self._flipped.keys())
