"""Encrypts segments by AES-256-GCM, one chunk or index at a time, stored as ``IV(12) ‖ ciphertext ‖ tag(16)``.

The data key and the AAD belong to the segment and are new for every attempt to copy it; every chunk has its own IV.
The library is imported only for an encrypted segment: most readers have none, and the import would slow their start.
Format: Aiven's, `docs/formats.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from ...runtime.id_source import RandomBytes
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
        """Return the data key. ``fingerprint``: of the key that wrapped it, where that is known.

        Raises InvalidRequest when the ring lacks that key or has another one; CorruptData for bytes it cannot open.
        """
        ...


class KeyWrapper(Protocol):
    """A key ring; public keys are enough (`keyring.py`)."""

    def wrap(self, data_key: bytes) -> tuple[str, bytes, str]:
        """Wrap under the ring's active key. Return (key id, the data key wrapped under it, the key's fingerprint)."""
        ...


class SegmentCipher:
    """Encrypts and decrypts the chunks and indexes of one segment, under one data key. Thread-safe."""

    def __init__(self, encryption: Encryption, keys: KeyUnwrapper, *, source: str) -> None:
        """``source`` names the manifest. Raises what `open_data_key` raises."""
        self._begin(open_data_key(encryption, keys, source=source), encryption.aad)

    @classmethod
    def new(cls, keys: KeyWrapper, random: RandomBytes) -> tuple[SegmentCipher, Encryption]:
        """Return a cipher with a new data key for one attempt to copy one segment, and its entry in the manifest.

        Another attempt needs another. ``random`` gives the data key, then the AAD. Raises InvalidRequest.
        """
        data_key, aad = random(DATA_KEY_BYTES), random(AAD_BYTES)
        key_id, wrapped, fingerprint = keys.wrap(data_key)
        cipher = cls.__new__(cls)
        cipher._begin(data_key, aad)
        return cipher, Encryption(key_id, wrapped, aad, fingerprint)

    def _begin(self, data_key: bytes, aad: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.ciphers.algorithms import AES

        self._cipher, self._key = AESGCM(data_key), AES(data_key)
        self._aad = aad

    def encrypt(self, plain: Data, iv: bytes) -> bytes:
        """Return one chunk of the log, or one index, as it is stored: `OVERHEAD_BYTES` longer.

        ``iv``: `IV_BYTES` random bytes, never used twice. Raises InvalidRequest for another length, and for no bytes:
        an empty index is stored as no bytes, and an empty chunk does not exist.
        """
        if len(iv) != IV_BYTES or not len(plain):
            raise InvalidRequest("nothing to encrypt, or an IV of another length", bytes=len(plain), iv=len(iv))
        return b"".join(self.encrypt_pieces([plain], iv))

    def encrypt_pieces(self, plain: Iterable[Data], iv: bytes) -> Iterator[bytes]:
        """Encrypt one chunk like `encrypt`, in pieces: at most one step of it is in memory, which is faster than a
        chunk that exceeds the processor's caches. Consume it to the end: the tag comes last."""
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.modes import GCM

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
        """Return the plain bytes of one chunk. Raises CorruptData naming ``source`` and ``position``."""
        from cryptography.exceptions import InvalidTag

        if len(stored) < OVERHEAD_BYTES:
            raise CorruptData("an encrypted chunk is too short", file=source, position=position, bytes=len(stored))
        view = memoryview(stored)  # a slice of bytes would copy the chunk
        try:
            return self._cipher.decrypt(view[:IV_BYTES], view[IV_BYTES:], self._aad)
        except InvalidTag as error:
            raise CorruptData("decryption fails", file=source, position=position, bytes=len(stored)) from error


def open_data_key(encryption: Encryption, keys: KeyUnwrapper, *, source: str) -> bytes:
    """Return the 32 bytes. Raises InvalidRequest without the private key, CorruptData when they are no data key.

    Both name ``source``, the manifest.
    """
    try:
        data_key = keys.unwrap(encryption.key_id, encryption.wrapped_key, encryption.key_fingerprint)
    except (InvalidRequest, CorruptData) as error:
        raise type(error)(error.message, **({"file": source} | error.facts)) from error
    if len(data_key) != DATA_KEY_BYTES:
        raise CorruptData("a data key has 32 bytes", file=source, key_id=encryption.key_id, bytes=len(data_key))
    return data_key
