"""Identity and randomness: all other code gets an `IdSource` or `RandomBytes` as an argument."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from typing import Protocol

RandomBytes = Callable[[int], bytes]
"""A function that returns the given number of unpredictable bytes. Encryption keys are made of them."""

system_random: RandomBytes = os.urandom
_KEY = system_random(32)


def keyed_digest(*parts: str) -> bytes:
    """Return a digest of secrets that is useless outside this process. No part may contain a NUL character."""
    return hmac.digest(_KEY, "\0".join(parts).encode(), "sha256")


class IdSource(Protocol):
    """A source of fresh identities."""

    def uuid(self) -> bytes:
        """Return 16 bytes that are unique; their text never starts with ``-`` (as Kafka's ``Uuid.randomUuid``)."""

    def jitter(self) -> float:
        """Return a number in [0, 1) for back-off."""


class RandomIds:
    """Identities from the operating system's randomness."""

    def uuid(self) -> bytes:
        while True:
            raw = os.urandom(16)
            if raw[0] >> 2 != 62:  # base64url digit 62 is "-"
                return raw

    def jitter(self) -> float:
        return int.from_bytes(os.urandom(7), "big") / 2**56
