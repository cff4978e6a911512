"""Adds a new key pair to a key ring, or creates a ring. No PEM file is overwritten, and no key is removed.

Aiven's plugin can read the PEM files: X.509 for the public key, unencrypted PKCS#8 for the private one.
They are written and fsynced before the ring names them. The ring's file is replaced atomically.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ...state.errors import InvalidRequest
from ..directory import fsync_folder
from .keyring import MIN_BITS, KeyRing

DEFAULT_BITS = 3072
MAX_BITS = 8192
_KEY_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
"""Valid ids of new keys. The rule for reading a ring is less strict, but new ids also become file names."""
_ACTIVE = re.compile(r"^[ \t]*active[ \t]*=.*$", re.MULTILINE)
_FIRST_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to add. ``activates``: it will wrap all new data keys, so every reader must have it before."""

    ring: Path
    key_id: str
    bits: int
    activates: bool
    begins_ring: bool

    @property
    def public(self) -> Path:
        return self.ring.parent / f"{self.key_id}.public.pem"

    @property
    def private(self) -> Path:
        return self.ring.parent / f"{self.key_id}.private.pem"


def plan_key(ring: Path, key_id: str, *, bits: int = DEFAULT_BITS, activate: bool = False) -> NewKey:
    """Return the key for `add_key`. Change nothing. The first key of a ring is always active. Raises InvalidRequest."""
    if not _KEY_ID.fullmatch(key_id):
        raise InvalidRequest("a new key id has letters, digits, '.', '_' and '-' only, at most 64", key_id=repr(key_id))
    if not MIN_BITS <= bits <= MAX_BITS:
        raise InvalidRequest("bits out of range", bits=bits, least=MIN_BITS, most=MAX_BITS)
    begins_ring = not ring.exists()
    if not begins_ring and key_id in KeyRing.load(ring).keys:
        raise InvalidRequest("the key ring has a key of this id", file=ring, key_id=key_id)
    key = NewKey(ring, key_id, bits, activate or begins_ring, begins_ring)
    for path in (key.public, key.private):
        if path.exists():
            raise InvalidRequest("PEM file exists and is not overwritten", file=path)
    return key


def add_key(key: NewKey) -> KeyRing:
    """Write what `plan_key` planned and return the new ring. Raises InvalidRequest."""
    pair = rsa.generate_private_key(public_exponent=65537, key_size=key.bits)
    private = pair.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = pair.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    try:
        text = _with_key("" if key.begins_ring else key.ring.read_text(encoding="utf-8"), key)
        key.ring.parent.mkdir(parents=True, exist_ok=True)
        _create(key.private, private, 0o600)
        _create(key.public, public, 0o644)
        _exchange(key.ring, text.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest("the key cannot be written", file=key.ring, key_id=key.key_id, reason=error) from error
    return KeyRing.load(key.ring)


def _with_key(text: str, key: NewKey) -> str:
    """Return the ring's text with the key added at its end. Comments and order stay. Raises InvalidRequest."""
    files = {"public": key.public.name, "private": key.private.name}
    expected = tomllib.loads(text)
    expected.setdefault("keys", {})[key.key_id] = files
    if key.activates:
        expected["active"] = key.key_id
        text = f'active = "{key.key_id}"\n' if key.begins_ring else _activated(text, key.key_id)
    lines = "".join(f'{name} = "{file}"\n' for name, file in files.items())
    text = f'{text.rstrip()}\n\n[keys."{key.key_id}"]\n{lines}'
    try:
        actual = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        actual = None
    if actual != expected:
        raise InvalidRequest("the key ring is written in a way that must be edited by hand", file=key.ring)
    return text


def _activated(text: str, key_id: str) -> str:
    table = _FIRST_TABLE.search(text)
    top = text if table is None else text[: table.start()]
    return _ACTIVE.sub(f'active = "{key_id}"', top, count=1) + text[len(top) :]


def _create(path: Path, data: bytes, mode: int) -> None:
    """Write a new file and fsync it. Raises FileExistsError."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fsync_folder(path.parent)


def _exchange(path: Path, data: bytes) -> None:
    """Replace the file atomically: after a crash, the complete old or new file exists. Its permissions stay."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # may remain from a writer that was killed
    _create(temporary, data, path.stat().st_mode & 0o777 if path.exists() else 0o644)
    os.replace(temporary, path)
    fsync_folder(path.parent)
