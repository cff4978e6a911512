"""A bounded cache of decoders by schema id. A caller waits for a decoder only until its own deadline.

Each request to the registry has its own thread, so that callers can stop waiting. There is one request per id, and at
most `MOST_ASKED` at a time. A refused id is not requested again for `AGAIN_S` seconds. If the registry does not answer,
no id is requested for `AGAIN_S` seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from cachetools import LRUCache

from ..runtime.clock import Clock
from ..state.errors import AccessDenied, TierstateError, TimedOut, Unavailable
from .bounded_json import BoundedJson
from .schema_registry import AnsweredOtherwise, RegisteredSchema

AGAIN_S = 10.0
MOST_ASKED = 8
_REFUSED = 10_000
_OVERHEAD = 1024
"""Bytes that a decoder takes in addition to its schema."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """``write`` decodes the bytes after the schema id, and raises any error of its library. ``size``: the bytes of the
    schema's text.
    """

    kind: str
    size: int
    write: Callable[[bytes, BoundedJson], None]


@dataclass(slots=True)
class _Question:
    over: threading.Event = field(default_factory=threading.Event)
    decoder: Decoder | None = None
    error: TierstateError | None = None


class RegisteredSchemas:
    """The cache. Thread-safe. ``ask`` requests a schema, and ``make`` creates its decoder, in the request's thread."""

    def __init__(
        self,
        ask: Callable[[int], RegisteredSchema],
        make: Callable[[int, RegisteredSchema], Decoder],
        clock: Clock,
        cache_bytes: int,
    ) -> None:
        self._ask, self._make, self._clock = ask, make, clock
        self._decoders: LRUCache[int, Decoder] = LRUCache(cache_bytes, getsizeof=lambda each: each.size + _OVERHEAD)
        self._refused: LRUCache[int, tuple[float, TierstateError]] = LRUCache(_REFUSED)
        self._questions: dict[int, _Question] = {}
        self._away: tuple[float, TierstateError] | None = None
        self._lock = threading.Lock()

    def decoder(self, id: int, until: float) -> Decoder:
        """Return a decoder. Wait at most until ``until`` (monotonic). Raises the errors of ``ask``, TimedOut and
        Unavailable.
        """
        with self._lock:
            if (cached := self._decoders.get(id)) is not None:
                return cached
            now = self._clock.monotonic()
            for refused in (self._refused.get(id), self._away):
                if refused is not None and now < refused[0]:
                    raise refused[1]
            question = self._questions.get(id)
            if question is None:
                if len(self._questions) >= MOST_ASKED:
                    raise Unavailable("the schema registry is slow: too many requests wait for it")
                question = self._questions[id] = _Question()
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
        except Exception as error:  # a library may raise any error for a schema
            question.error = AnsweredOtherwise(f"the schema cannot be used: {type(error).__name__}: {str(error)[:200]}")
        with self._lock:
            del self._questions[id]
            if question.decoder is not None:
                self._away = None
                if question.decoder.size + _OVERHEAD <= self._decoders.maxsize:
                    self._decoders[id] = question.decoder
            elif question.error is not None:
                refused = self._clock.monotonic() + AGAIN_S, question.error
                self._refused[id] = refused
                if _is_away(question.error):
                    self._away = refused
        question.over.set()


def _is_away(error: TierstateError) -> bool:
    """Return whether all schemas would be refused: the registry does not answer, or rejects the credentials."""
    if isinstance(error, AccessDenied):
        return error.facts.get("status") == 401
    return isinstance(error, Unavailable) and not isinstance(error, AnsweredOtherwise)
