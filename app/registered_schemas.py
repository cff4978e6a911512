"""Decoders by the id of a schema: asked for once, kept within bounds, and never waited for longer than a call may.

A question is asked by a thread of its own, so that whoever waits can stop waiting; one question an id, `MOST_ASKED` at
a time. What was refused, and a registry that did not answer, is not asked again for `AGAIN_S`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from cachetools import LRUCache

from ..runtime.clock import Clock
from ..state.errors import AccessDenied, TierstateError, TimedOut, Unavailable
from ..values.schema_registry import AnsweredOtherwise, RegisteredSchema
from .bounded_json import BoundedJson

AGAIN_S = 10.0
MOST_ASKED = 8
_REFUSED = 10_000
_OVERHEAD = 1024
"""Of a decoder, beside its schema."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """``write``: of the bytes behind the frame; raises whatever its library raises. ``size``: of its schema's text."""

    kind: str
    size: int
    write: Callable[[bytes, BoundedJson], None]


@dataclass(slots=True)
class _Question:
    over: threading.Event = field(default_factory=threading.Event)
    decoder: Decoder | None = None
    error: TierstateError | None = None


class RegisteredSchemas:
    """Thread-safe. ``ask``: the registry for an id; ``make``: a decoder of what it says; in a question's thread."""

    def __init__(
        self,
        ask: Callable[[int], RegisteredSchema],
        make: Callable[[int, RegisteredSchema], Decoder],
        clock: Clock,
        cache_bytes: int,
    ) -> None:
        self._ask, self._make, self._clock = ask, make, clock
        self._known: LRUCache[int, Decoder] = LRUCache(cache_bytes, getsizeof=lambda each: each.size + _OVERHEAD)
        self._refused: LRUCache[int, tuple[float, TierstateError]] = LRUCache(_REFUSED)
        self._asked: dict[int, _Question] = {}
        self._away: tuple[float, TierstateError] | None = None
        self._lock = threading.Lock()

    def decoder(self, id: int, until: float) -> Decoder:
        """Waits until a moment of the clock at most. Raises what the registry raised, TimedOut, Unavailable."""
        with self._lock:
            if (known := self._known.get(id)) is not None:
                return known
            now = self._clock.monotonic()
            for refused in (self._refused.get(id), self._away):
                if refused is not None and now < refused[0]:
                    raise refused[1]
            question = self._asked.get(id)
            if question is None:
                if len(self._asked) >= MOST_ASKED:
                    raise Unavailable("the schema registry is slow: too many questions wait for it")
                question = self._asked[id] = _Question()
                threading.Thread(target=self._answer, args=(id, question), daemon=True, name="schema-registry").start()
        if not question.over.wait(max(0.0, until - now)):
            late = TimedOut("the schema registry did not answer in time")
            with self._lock:
                self._away = self._clock.monotonic() + AGAIN_S, late
            raise late
        if question.decoder is None:
            assert question.error is not None
            raise question.error
        return question.decoder

    def _answer(self, id: int, question: _Question) -> None:
        try:
            question.decoder = self._make(id, self._ask(id))
        except TierstateError as error:
            question.error = error
        except Exception as error:  # whatever a library meets in a schema
            question.error = AnsweredOtherwise(f"the schema cannot be used: {type(error).__name__}: {str(error)[:200]}")
        with self._lock:
            del self._asked[id]
            if question.decoder is not None:
                self._away = None
                if question.decoder.size + _OVERHEAD <= self._known.maxsize:
                    self._known[id] = question.decoder
            elif question.error is not None:
                refused = self._clock.monotonic() + AGAIN_S, question.error
                self._refused[id] = refused
                if _is_away(question.error):
                    self._away = refused
        question.over.set()


def _is_away(error: TierstateError) -> bool:
    """Whether other schemas would be refused alike: no answer, or none to these credentials."""
    if isinstance(error, AccessDenied):
        return error.facts.get("status") == 401
    return isinstance(error, Unavailable) and not isinstance(error, AnsweredOtherwise)
