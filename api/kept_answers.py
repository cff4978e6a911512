"""Answers that were asked for twice, as they were sent: who asks for the same is answered without decoding it again.

Many who read one topic from one place on ask the same calls. What a call brought from one segment of the remote tier,
it brings as long as it is routed to the same offsets of the same segment: objects never change. Who may read, and what
the bounds are, is asked each time.
Of stored batches, which lie in the chunk cache, only their place is kept, and the head of the answer.
Memory: what no call needs of `gateway.memory`; a call that does need it takes it from here, what was unused longest
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from ..fetch.piece import AtHand
from ..state.offsets import Offset
from ..state.routing import ReadRemote
from .answer import Answer
from .answer_body import Call, Ready
from .answer_memory import AnswerMemory, Held

REMEMBERED = 4096
"""Calls of which it is known that somebody asked."""
BESIDE_BYTES = 4096
"""What an answer takes beside its body, however small that is."""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """``stored``: bytes as they are stored, which is what a quota counts."""

    body: Sequence[Ready]
    size: int
    stored: int
    next_offset: Offset


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """Of stored batches. ``answer``: its body has no bytes. ``trailer``: what is behind them."""

    read: AtHand
    answer: Answer
    trailer: bytes


class KeptAnswers:
    """By the event loop alone. ``call``: whatever beside the place makes two answers differ."""

    def __init__(self, memory: AnswerMemory) -> None:
        self._memory = memory
        self._asked: LRUCache[Any, None] = LRUCache(REMEMBERED)

    def find(self, read: ReadRemote, call: Any, held: Held) -> KeptAnswer | None:
        """It stays as long as ``held`` does, whose own need is what it copies for its client: a chunk."""
        found: KeptAnswer | None = held.borrow((read, call))
        if found is not None:
            held.resize(max(map(len, found.body), default=0))
        return found

    def offer(self, read: ReadRemote, call: Any, body: Sequence[Ready], stored: int, next_offset: Offset) -> None:
        """Kept if somebody asked for it before, and there is room."""
        if self._was_asked((read, call)):
            size = sum(map(len, body))
            self._memory.keep((read, call), KeptAnswer(tuple(body), size, stored, next_offset), size + BESIDE_BYTES)

    def place(self, call: Call) -> KeptPlace | None:
        """Where its batches were: whether they are there now, and read there, the place says."""
        found: KeptPlace | None = self._memory.kept(call)
        return found

    def offer_place(self, call: Call, place: KeptPlace) -> None:
        """As `offer`."""
        if self._was_asked(call):
            self._memory.keep(call, place, BESIDE_BYTES)

    def _was_asked(self, name: Any) -> bool:
        """Who reads a topic from end to end asks for nothing twice, and fills no memory."""
        known = name in self._asked
        self._asked[name] = None
        return known
