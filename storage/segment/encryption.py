"""Encrypts segments by AES-256-GCM, one chunk or index at a time, stored as ``IV(12) ‖ ciphertext ‖ tag(16)``.

Every attempt to copy a segment has a new data key and a new AAD. Every chunk and index has its own IV.
The library is imported only for encrypted segments, because the import would slow the start of all other readers.
The format is Aiven's (`docs/formats.md`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from ...runtime.id_source import RandomBytes, system_random
from ...state.errors import CorruptData, InvalidRequest
from ..object_store import MIB, Data
from .manifest import Encryption

DATA_KEY_BYTES = 32
AAD_BYTES = 32
IV_BYTES = 12
OVERHEAD_BYTES = IV_BYTES + 16
_STEP_BYTES = MIB


class KeyUnwrapper(Protocol):
    """A key ring with private keys (`keyring.py`)."""

    def unwrap(self, key_id: str, wrapped: bytes, fingerprint: str | None = None) -> bytes:
        """Return the data key. ``fingerprint`` identifies the key that wrapped the data key; None if that is unknown.

        Raises InvalidRequest if the ring lacks that key or has another one under its id. Raises CorruptData if the key
        cannot unwrap the bytes.
        """


class KeyWrapper(Protocol):
    """A key ring that needs only public keys (`keyring.py`)."""

    def wrap(self, data_key: bytes) -> tuple[str, bytes, str]:
        """Wrap the data key under the active key. Return (active key's id, wrapped data key, key's fingerprint)."""


class SegmentCipher:
    """Encrypts and decrypts the chunks and indexes of one segment, under one data key. Thread-safe."""

    def __init__(self, data_key: bytes, aad: bytes, random: RandomBytes = system_random) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.ciphers.algorithms import AES

        self._cipher, self._key = AESGCM(data_key), AES(data_key)
        self._aad, self._random = aad, random

    @classmethod
    def open(cls, encryption: Encryption, keys: KeyUnwrapper, *, source: str) -> SegmentCipher:
        """Return the cipher of a written segment. ``source`` names its manifest. Raises what `open_data_key` raises."""
        return cls(open_data_key(encryption, keys, source=source), encryption.aad)

    @classmethod
    def new(cls, keys: KeyWrapper, random: RandomBytes) -> tuple[SegmentCipher, Encryption]:
        """Return a cipher with a new data key, and its entry in the manifest, for one attempt to copy one segment.

        Another attempt needs another cipher. ``random`` returns the data key, the AAD, then each IV. Raises
        InvalidRequest.
        """
        data_key, aad = random(DATA_KEY_BYTES), random(AAD_BYTES)
        key_id, wrapped, fingerprint = keys.wrap(data_key)
        return cls(data_key, aad, random), Encryption(key_id, wrapped, aad, fingerprint)

    def encrypt(self, plain: Data) -> bytes:
        """Return the stored bytes of one index, `OVERHEAD_BYTES` longer than ``plain``. An empty one stays empty."""
        return b"".join(self.encrypt_pieces([plain])) if len(plain) else b""

    def encrypt_pieces(self, plain: Iterable[Data]) -> Iterator[bytes]:
        """Yield the stored bytes of one chunk in pieces, with a new IV. At most `_STEP_BYTES` of output are in memory,
        which fit into the processor's caches. Consume the iterator to its end, because the tag is last."""
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.modes import GCM

        iv = self._random(IV_BYTES)
        encryption = Cipher(self._key, GCM(iv)).encryptor()
        encryption.authenticate_additional_data(self._aad)
        yield iv
        for piece in plain:
            view = memoryview(piece)
            for start in range(0, len(view), _STEP_BYTES):
                yield encryption.update(view[start : start + _STEP_BYTES])
        encryption.finalize()
        yield encryption.tag

    def decrypt(self, stored: Data, *, source: str, position: int) -> bytes:
        """Return the plain bytes of one chunk or index. Raises CorruptData that names ``source`` and ``position``."""
        from cryptography.exceptions import InvalidTag

        if len(stored) < OVERHEAD_BYTES:
            raise CorruptData("an encrypted chunk is too short", file=source, position=position, bytes=len(stored))
        view = memoryview(stored)  # a slice of bytes would copy the chunk
        try:
            return self._cipher.decrypt(view[:IV_BYTES], view[IV_BYTES:], self._aad)
        except InvalidTag as error:
            raise CorruptData("decryption fails", file=source, position=position, bytes=len(stored)) from error


def open_data_key(encryption: Encryption, keys: KeyUnwrapper, *, source: str) -> bytes:
    """Return the unwrapped data key. The errors name ``source``, the manifest.

    Raises InvalidRequest without the right private key, CorruptData if there is no data key of 32 bytes in it.
    """
    try:
        data_key = keys.unwrap(encryption.key_id, encryption.wrapped_key, encryption.key_fingerprint)
    except (InvalidRequest, CorruptData) as error:
        raise type(error)(error.message, **({"file": source} | error.facts)) from error
    if len(data_key) != DATA_KEY_BYTES:
        raise CorruptData("a data key has 32 bytes", file=source, key_id=encryption.key_id, bytes=len(data_key))
    return data_key
