"""Digests of secrets that are useless outside this process: their key is a random number of this process."""

from __future__ import annotations

import hmac
import secrets

_KEY = secrets.token_bytes(32)


def keyed_digest(*parts: str) -> bytes:
    """Return a digest of 32 bytes. No part may contain a NUL character."""
    return hmac.digest(_KEY, "\0".join(parts).encode(), "sha256")
