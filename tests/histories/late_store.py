"""The store of a history. Writes may land late: after the writer gave up, after a deletion, or a second time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from tierstate.runtime.clock import Clock
from tierstate.state.errors import ObjectExists, StorageUnavailable
from tierstate.storage.memory import Faults, MemoryStore
from tierstate.storage.object_store import DEFAULT_PART_BYTES, Data

_NEVER_ANSWERED, _ANSWER_LOST, _SENT_TWICE = 0.05, 0.1, 0.2
"""Cumulative chances that a write is delayed and not answered; that its answer is lost; that it is sent twice."""


@dataclass(frozen=True, slots=True)
class Late:
    """A delayed write. ``again``: it has landed once already."""

    key: str
    data: bytes
    kind: str
    again: bool


class LateStore(MemoryStore):
    """Writes land late in some histories (``active``). A random generator of its own keeps other histories unchanged.

    ``overwrites``: large puts replace existing objects, as where a store ignores the condition or a cloud's own
    uploader has none (docs/decisions/0040). ``seen`` counts late writes by their kind and effect.
    """

    def __init__(self, clock: Clock, faults: Faults, seed: int, seen: Counter[str]) -> None:
        super().__init__(clock, faults)
        self._seed, self._seen, self._rnd = seed, seen, Random(f"late writes of {seed}")
        self.active, self.overwrites = False, self._rnd.random() < 0.7
        self._flight: list[Late] = []

    def step(self, step: int) -> None:
        """Land or lose a delayed write now and then. Called before each step of the history."""
        self._rnd.seed(f"late writes of {self._seed} at {step}")
        if self._flight and self._rnd.random() < 0.1:
            late = self._flight.pop(self._rnd.randrange(len(self._flight)))
            if self._rnd.random() < 0.8:  # else it is lost for good
                self._land_late(late)

    def held(self, key: str) -> bytes | None:
        """Return the object's bytes without a request, or None if there is no object."""
        found = self._objects.get(key)
        return None if found is None else found[0]

    def rot(self, key: str, data: bytes) -> None:
        """Replace the object's bytes, if the object still exists."""
        if key in self._objects:
            self._objects[key] = (data, self._objects[key][1])

    def put_if_absent(self, key: str, data: Data) -> None:
        self._send(key, bytes(data), "small", lambda: MemoryStore.put_if_absent(self, key, data))

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        held = [bytes(piece) for piece in pieces]
        data = b"".join(held)
        self._send(key, data, "large", lambda: MemoryStore.put_stream(self, key, held, part_bytes=part_bytes))
        return len(data)

    def _send(self, key: str, data: bytes, kind: str, land: Callable[[], object]) -> None:
        chance = self._rnd.random() if self.active else 1.0
        if chance < _NEVER_ANSWERED:
            self._flight.append(Late(key, data, kind, again=False))
            raise StorageUnavailable("the store does not answer", key=key)
        land()
        if chance < _SENT_TWICE:
            self._flight.append(Late(key, data, kind, again=True))
        if chance < _ANSWER_LOST:
            raise StorageUnavailable("the answer is lost", key=key)

    def _land_late(self, late: Late) -> None:
        found = self._objects.get(late.key)
        if found is None:
            self._seen[f"late {late.kind} put{' after a deletion' if late.again else ''}"] += 1
        elif self.overwrites and late.kind == "large":
            assert found[0] == late.data, f"two writers have written {late.key}"
            self._seen["late large put over itself"] += 1
            del self._objects[late.key]
        with suppress(ObjectExists):
            self._publish(late.key, late.data)
