"""Digests of secrets that mean nothing outside this process: their key is a random number of its own."""

from __future__ import annotations

import hmac
import secrets

_KEY = secrets.token_bytes(32)


def keyed_digest(*parts: str) -> bytes:
    """32 bytes. Parts hold no NUL."""
    return hmac.digest(_KEY, "\0".join(parts).encode(), "sha256")
