"""The user name that a client presents by SASL, for the access log. Its password is never kept.

PLAIN: RFC 4616. SCRAM: RFC 5802, 5.1. OAUTHBEARER: RFC 7628 with a JWT (RFC 7519), whose ``sub`` brokers use as the
principal by default. The name is logged only after the broker has accepted the login.
"""

from __future__ import annotations

import base64
import binascii
import json
import re

NOBODY = ""
_SCRAM = re.compile(rb"[nyp][^,]*,[^,]*,n=([^,]*),")
_BEARER = re.compile(rb"auth=Bearer ([A-Za-z0-9_.~+/=-]+)", re.IGNORECASE)


def user_of(mechanism: str, message: bytes) -> str:
    """Return the user in the first message of ``mechanism``, or `NOBODY` if there is none or it cannot be read."""
    if mechanism == "PLAIN":
        parts = message.split(b"\0")
        return parts[1].decode("utf-8", "replace") if len(parts) == 3 else NOBODY
    if mechanism.startswith("SCRAM-SHA-"):
        match = _SCRAM.match(message)
        name = match[1] if match else b""
        return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode("utf-8", "replace")
    if mechanism == "OAUTHBEARER":
        match = _BEARER.search(message)
        return _subject(match[1]) if match else NOBODY
    return NOBODY


def _subject(token: bytes) -> str:
    parts = token.split(b".")
    if len(parts) != 3:
        return NOBODY
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return NOBODY
    subject = claims.get("sub") if isinstance(claims, dict) else None
    return subject if isinstance(subject, str) else NOBODY
