"""Users of a proxy that reads the bucket alone: a file with their passwords and the topics that they may read.

    [ann]
    password = "…"                    # SASL/PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512
    read = ["orders", "payments-.*"]  # regular expressions that match the whole name

    [ANONYMOUS]                       # clients that do not log in
    read = ["public-.*"]

The file is read again if it changes. PLAIN: RFC 4616. SCRAM: RFC 5802, without channel binding.
"""

from __future__ import annotations

import hmac
import re
import tomllib
from base64 import b64encode
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from kafka.net.sasl.scram import ScramClient
from pydantic import SecretStr, ValidationError

from ..runtime.id_source import system_random
from ..runtime.live_secret import changed_text
from ..runtime.setting_types import Patterns, Section
from ..state.errors import AccessDenied, InvalidSettings, Unavailable

ANONYMOUS = "ANONYMOUS"
"""Kafka's name for clients that do not log in."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS = 4096
"""The number that Kafka's brokers use if no other is set."""
_SCRAM_FIRST = re.compile(rb"n,,(n=([^,]+),r=([^,]+)(?:,.*)?)")
_BEGUN = b"", None
PasswordOf = Callable[[str], str | None]
Exchange = Generator[tuple[bytes, str | None], bytes, None]
"""A login in progress. After `next`, `send` takes each message of the client. It yields the answer, and the user once
the login has succeeded."""


class _User(Section):
    password: SecretStr | None = None
    read: Patterns = ()


class Principals:
    """The file of users, their passwords and their rights. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidSettings if the file cannot be used."""
        self._path = path
        self._seen: tuple[int, ...] = ()
        self._users: dict[str, _User] = {}
        self._refresh()

    def may_read(self, user: str, topic: str) -> bool:
        """Return whether ``user`` may read ``topic``. Raises Unavailable for a bad file."""
        entry = self._current().get(user)
        return entry is not None and any(re.fullmatch(pattern, topic) for pattern in entry.read)

    def password(self, user: str) -> str | None:
        """Return the password, or None for users that cannot log in. Raises Unavailable for a bad file."""
        entry = self._current().get(user)
        return None if entry is None or entry.password is None else entry.password.get_secret_value()

    @property
    def lets_anonymous(self) -> bool:
        """Return whether clients need not log in. Raises Unavailable for a bad file."""
        return ANONYMOUS in self._current()

    def _current(self) -> dict[str, _User]:
        try:
            self._refresh()
        except InvalidSettings as error:
            raise Unavailable("the proxy's file of users cannot be used", reason=error) from error
        return self._users

    def _refresh(self) -> None:
        try:
            changed = changed_text(self._path, self._seen, "proxy.principals")
            if changed is None:
                return
            text, seen = changed
            users = {name: _User(**user) for name, user in tomllib.loads(text).items()}
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidSettings([f"proxy.principals: {self._path} cannot be read, {error}"]) from error
        except (ValidationError, TypeError) as error:  # neither message contains a password
            raise InvalidSettings([f"proxy.principals: {self._path} has an entry that is no user, {error}"]) from error
        self._users, self._seen = users, seen


def exchange_of(mechanism: str, password_of: PasswordOf) -> Exchange:
    """Return the login by a mechanism of `MECHANISMS`. Raises AccessDenied for wrong credentials."""
    return _plain(password_of) if mechanism == "PLAIN" else _scram(mechanism, password_of)


def _plain(password_of: PasswordOf) -> Exchange:
    parts = (yield _BEGUN).split(b"\0")
    if len(parts) != 3:
        raise _denied()
    user = parts[1].decode("utf-8", "replace")
    password = password_of(user)
    if not hmac.compare_digest((password or "").encode(), parts[2]) or not password or parts[0] not in (b"", parts[1]):
        raise _denied()
    yield b"", user


def _scram(mechanism: str, password_of: PasswordOf) -> Exchange:
    """Check a client by kafka-python's client, which computes the proofs of both sides. An unknown user fails only at
    the end, as a wrong password does.
    """
    first = _SCRAM_FIRST.fullmatch((yield _BEGUN))
    if first is None:
        raise _denied()
    user = first[2].replace(b"=2C", b",").replace(b"=3D", b"=").decode("utf-8", "replace")
    password = password_of(user)
    client: Any = ScramClient(user, password or system_random(16).hex(), mechanism)
    client.nonce, client.auth_message = first[3], first[1]
    salt, nonce = b64encode(system_random(18)), first[3] + system_random(16).hex().encode()
    challenge = b"r=%b,s=%b,i=%d" % (nonce, salt, ITERATIONS)
    client.process_server_first_message(challenge)
    final = yield challenge, None
    if not hmac.compare_digest(final, client.final_message()) or not password:
        raise _denied()
    yield b"v=" + b64encode(client.server_signature), user


def _denied() -> AccessDenied:
    return AccessDenied("the user or the password is wrong")
