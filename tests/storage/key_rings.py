"""Key rings on disk, to test with."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tierstate.storage.segment.keyring import KeyRing


def write_ring(folder: Path, active: str, *key_ids: str, public_only: tuple[str, ...] = (), bits: int = 2048) -> Path:
    """Write a ring of fresh pairs; ``public_only`` have no private key in it. Existing PEM files are used again."""
    lines = [f'active = "{active}"\n']
    for key_id in key_ids:
        private, public = folder / f"{key_id}.private.pem", folder / f"{key_id}.public.pem"
        if not private.exists():
            pair = rsa.generate_private_key(public_exponent=65537, key_size=bits)
            private.write_bytes(
                pair.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                )
            )
            public.write_bytes(
                pair.public_key().public_bytes(
                    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
                )
            )
        lines += [f'[keys."{key_id}"]\n', f'public = "{public.name}"\n']
        lines += [] if key_id in public_only else [f'private = "{private.name}"\n']
    ring = folder / f"{active}-{'-'.join(public_only) or 'all'}.toml"
    ring.write_text("".join(lines))
    return ring


def load_ring(folder: Path, active: str, *key_ids: str, public_only: tuple[str, ...] = ()) -> KeyRing:
    return KeyRing.load(write_ring(folder, active, *key_ids, public_only=public_only))
