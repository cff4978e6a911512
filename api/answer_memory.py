"""What all answers together hold: records as stored, decoded, encoded, and waiting for a client.

An answer takes before it begins what it will need at most, and has it until its last byte is the client's; where that
is not free it is refused (429) and nobody waits for memory. Counted are the large buffers; a connection's own are in
`connections.py`. What is free may be kept for later, and is let go for whoever needs it; not while it is an answer's
that is sent: it is in use then, once, however many send it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from ..state.errors import BatchTooLarge, Throttled

RETRY_AFTER_S = 1


@dataclass(slots=True)
class _Lent:
    size: int
    what: Any
    users: int = 0


class AnswerMemory:
    """``size`` bytes. Thread-safe."""

    def __init__(self, size: int) -> None:
        self.size, self.used, self.most_used, self.refused = size, 0, 0, 0
        self.kept_bytes = 0
        self._kept: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._lent: dict[Hashable, _Lent] = {}
        self._lock = threading.Lock()

    def hold(self) -> Held:
        """Nothing yet, of one answer."""
        return Held(self)

    def change(self, more: int) -> None:
        """Throttled: so many bytes more are not free."""
        with self._lock:
            if more > 0 and self.used + more > self.size:
                self.refused += 1
                raise Throttled("the gateway's memory is in use", retry_after=RETRY_AFTER_S)
            self.used += more
            self.most_used = max(self.most_used, self.used)
            self._let_go()

    def keep(self, name: Hashable, what: Any, size: int) -> None:
        """As long as nobody needs its memory, and it is not the one that was unused longest."""
        with self._lock:
            if name not in self._lent:
                self.kept_bytes += size - self._kept.pop(name, (0, None))[0]
                self._kept[name] = size, what
                self._let_go()

    def kept(self, name: Hashable) -> Any:
        """None: not, or not any more."""
        with self._lock:
            if name not in self._kept:
                return None
            self._kept.move_to_end(name)
            return self._kept[name][1]

    def lend(self, name: Hashable) -> Any:
        """As `kept`, and it is not let go before it was given back as often."""
        with self._lock:
            if name in self._kept:
                size, what = self._kept.pop(name)
                self._lent[name] = _Lent(size, what)
                self._uses(size)
            lent = self._lent.get(name)
            if lent is None:
                return None
            lent.users += 1
            return lent.what

    def give_back(self, name: Hashable) -> None:
        with self._lock:
            lent = self._lent[name]
            lent.users -= 1
            if not lent.users:
                del self._lent[name]
                self._uses(-lent.size)
                self._kept[name] = lent.size, lent.what

    def _uses(self, more: int) -> None:
        """Of what is kept."""
        self.kept_bytes -= more
        self.used += more
        self.most_used = max(self.most_used, self.used)

    def _let_go(self) -> None:
        while self._kept and self.used + self.kept_bytes > self.size:
            self.kept_bytes -= self._kept.popitem(last=False)[1][0]


class Held:
    """By one thread at a time."""

    def __init__(self, memory: AnswerMemory) -> None:
        self._memory = memory
        self._bytes: int | None = 0
        self._borrowed: list[Hashable] = []

    @property
    def most(self) -> int:
        """Bytes that all answers together may have."""
        return self._memory.size

    def resize(self, size: int) -> None:
        """To so many bytes in all. Throttled: they are not free; it has what it had. BatchTooLarge: they never are."""
        if size > self._memory.size:
            raise BatchTooLarge(f"the answer takes {size} bytes, and the gateway has {self._memory.size}")
        if self._bytes is not None:  # else it was released while a thread was still at work for it
            self._memory.change(size - self._bytes)
            self._bytes = size

    def borrow(self, name: Hashable) -> Any:
        """What is kept by that name, until the release. None: nothing is."""
        found = self._memory.lend(name)
        if found is not None:
            self._borrowed.append(name)
        return found

    def release(self) -> None:
        """For good. Idempotent."""
        while self._borrowed:
            self._memory.give_back(self._borrowed.pop())
        if self._bytes is not None:
            self._memory.change(-self._bytes)
            self._bytes = None
