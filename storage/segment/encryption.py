"""Decrypting what is stored: AES-256-GCM, one chunk or index at a time, ``IV(12) ‖ ciphertext ‖ tag(16)``.

The data key and the AAD are the segment's; every chunk has an IV of its own. Format: Aiven's, `docs/formats.md`.
"""

from __future__ import annotations

from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ...state.errors import CorruptData
from .manifest import Encryption

IV_BYTES = 12
OVERHEAD_BYTES = IV_BYTES + 16


class KeyUnwrapper(Protocol):
    """A key ring with private keys (`keyring.py`)."""

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """The data key. Raises InvalidRequest for a key it does not have, CorruptData for bytes it cannot open."""
        ...


class SegmentCipher:
    """Decrypts the chunks and indexes of one segment; its data key is unwrapped once."""

    def __init__(self, encryption: Encryption, keys: KeyUnwrapper) -> None:
        data_key = keys.unwrap(encryption.key_id, encryption.wrapped_key)
        if len(data_key) != 32:
            raise CorruptData("a data key has 32 bytes", key_id=encryption.key_id, bytes=len(data_key))
        self._cipher = AESGCM(data_key)
        self._aad = encryption.aad

    def decrypt(self, stored: bytes, *, source: str, position: int) -> bytes:
        """The plain bytes of one chunk. Raises CorruptData naming ``source`` and ``position``."""
        if len(stored) < OVERHEAD_BYTES:
            raise CorruptData("an encrypted chunk is too short", file=source, position=position, bytes=len(stored))
        try:
            return self._cipher.decrypt(stored[:IV_BYTES], stored[IV_BYTES:], self._aad)
        except InvalidTag as error:
            raise CorruptData("decryption fails", file=source, position=position, bytes=len(stored)) from error
