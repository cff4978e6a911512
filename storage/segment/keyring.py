"""The key ring: RSA key pairs, by id, that wrap the data keys of segments.

A key ring is a TOML file: ``active = "key1"``, and ``[keys.key1]`` with ``public`` and ``private``, the paths of PEM
files relative to the ring. Copying needs no private key. Data keys are wrapped by RSA-OAEP with SHA3-512 for hash and
mask (Bouncy Castle's ``RSA/NONE/OAEPWithSHA3-512AndMGF1Padding``). `cryptography` lacks that, so pycryptodome is used.
"""

from __future__ import annotations

import hashlib
import threading
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from Crypto.Signature import pss

from ...runtime.listener import KeyRingRead, KeyRingRefused, Listener
from ...runtime.live_secret import files_state
from ...state.errors import CorruptData, InvalidRequest

MIN_BITS = 2048
"""Least bits of an RSA key, checked when a ring is loaded. OAEP with SHA3-512 itself needs 1296 bits."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An RSA key pair. ``private`` is None on machines that only wrap data keys."""

    public: RSA.RsaKey
    private: RSA.RsaKey | None = field(default=None, repr=False)

    @property
    def bits(self) -> int:
        return self.public.size_in_bits()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key in DER, in hex, as `openssl pkey -pubin -outform DER | sha256sum` prints it."""
        return hashlib.sha256(self.public.export_key(format="DER")).hexdigest()


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Key pairs by id, the newest last. The key ``active`` wraps new data keys."""

    active: str
    keys: dict[str, KeyPair]

    @classmethod
    def load(cls, path: Path) -> KeyRing:
        """Load a ring. Raises InvalidRequest with the file and the problem in it."""
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidRequest("key ring cannot be read", file=path, reason=error) from error
        active, keys = settings.get("active"), settings.get("keys")
        if not isinstance(active, str) or not isinstance(keys, dict) or active not in keys:
            raise InvalidRequest("a key ring has 'active', and [keys.ID] for it", file=path, active=active)
        return cls(active, {key_id: _pair(path, key_id, files) for key_id, files in keys.items()})

    def wrap(self, data_key: bytes) -> tuple[str, bytes, str]:
        pair = self.keys[self.active]
        cipher = PKCS1_OAEP.new(pair.public, hashAlgo=SHA3_512, mgfunc=_mask)
        return self.active, cipher.encrypt(data_key), pair.fingerprint

    def opens(self, key_id: str) -> bool:
        pair = self.keys.get(key_id)
        return pair is not None and pair.private is not None

    def is_newer(self, key_id: str) -> bool:
        """Return whether this key is newer than the active key. A ring lists its keys in the order of creation."""
        order = list(self.keys)
        return key_id in self.keys and order.index(key_id) > order.index(self.active)

    def unwrap(self, key_id: str, wrapped: bytes, fingerprint: str | None = None) -> bytes:
        pair = self.keys.get(key_id)
        if pair is None:
            raise InvalidRequest("the key ring lacks the segment's key", key_id=key_id, has=",".join(self.keys))
        if pair.private is None:
            raise InvalidRequest("the key ring has no private key under this id", key_id=key_id)
        cipher = PKCS1_OAEP.new(pair.private, hashAlgo=SHA3_512, mgfunc=_mask)
        try:
            return cipher.decrypt(wrapped)
        except (ValueError, TypeError) as error:
            if fingerprint is None:
                problem = "the data key cannot be unwrapped: it is damaged, or another key had this id"
                raise CorruptData(problem, key_id=key_id, bytes=len(wrapped), has=pair.fingerprint) from error
            if fingerprint != pair.fingerprint:
                problem = "wrong key: another key had this id when the segment was encrypted"
                raise InvalidRequest(problem, key_id=key_id, wanted=fingerprint, has=pair.fingerprint) from error
            raise CorruptData("the data key cannot be unwrapped", key_id=key_id, bytes=len(wrapped)) from error


class KeyRingFile:
    """A `KeyWrapper` and `KeyUnwrapper` that checks the ring's file whenever a key is needed. Thread-safe.

    An invalid file is reported once to the listener, and the previous ring stays in use. Write the PEM files before
    the ring that names them, because only the ring's own file is checked for changes.
    """

    def __init__(self, path: Path, listener: Listener) -> None:
        """Read the ring. Raises InvalidRequest if the file is missing or invalid now."""
        self._path, self._listener = path, listener
        self._lock = threading.Lock()
        self._seen = files_state([path])
        self._ring = KeyRing.load(path)

    def wrap(self, data_key: bytes) -> tuple[str, bytes, str]:
        return self._current().wrap(data_key)

    def unwrap(self, key_id: str, wrapped: bytes, fingerprint: str | None = None) -> bytes:
        return self._current().unwrap(key_id, wrapped, fingerprint)

    def _current(self) -> KeyRing:
        with self._lock:
            state = files_state([self._path])
            if state == self._seen:
                return self._ring
            self._seen = state
            previous_key = self._ring.active
            try:
                self._ring = KeyRing.load(self._path)
            except InvalidRequest as error:
                event: KeyRingRead | KeyRingRefused = KeyRingRefused(str(self._path), previous_key, str(error))
            else:
                event = KeyRingRead(str(self._path), self._ring.active, previous_key)
            ring = self._ring
        self._listener(event)
        return ring


def _mask(seed: bytes, length: int) -> bytes:
    return bytes(pss.MGF1(seed, length, SHA3_512))


def _pair(ring: Path, key_id: str, files: Any) -> KeyPair:
    if ":" in key_id or not key_id.strip():
        raise InvalidRequest("a key id is not blank and has no ':'", file=ring, key_id=repr(key_id))
    if not isinstance(files, dict) or not isinstance(files.get("public"), str):
        raise InvalidRequest("a key names its 'public' PEM file", file=ring, key_id=key_id)
    private = files.get("private")
    pair = KeyPair(_pem(ring, files["public"]), None if private is None else _pem(ring, str(private)))
    if pair.bits < MIN_BITS:
        raise InvalidRequest("an RSA key is too short", file=ring, key_id=key_id, bits=pair.bits, least=MIN_BITS)
    if pair.private is not None and (not pair.private.has_private() or pair.private.public_key() != pair.public):
        raise InvalidRequest("the two PEM files are no pair", file=ring, key_id=key_id)
    return pair


def _pem(ring: Path, name: str) -> RSA.RsaKey:
    try:
        return RSA.import_key((ring.parent / name).read_bytes())
    except (OSError, ValueError, IndexError, TypeError) as error:
        raise InvalidRequest("PEM file cannot be read", file=ring.parent / name, reason=error) from error
