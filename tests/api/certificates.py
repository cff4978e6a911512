"""Certificates of a test authority, for the gateway and its clients."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

SHAPE = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()


def certificates(folder: Path, *users: str) -> Path:
    """Write the authority's certificate, and one with its key for each user. Return the authority's file."""
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "clients")])
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def certificate(name: str, public: Any, authority: bool) -> bytes:
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number(), now - day, now + day)
        constrained = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        return constrained.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    (folder / "clients.pem").write_bytes(certificate("clients", key.public_key(), True))
    for user in users:
        own = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (folder / f"{user}.pem").write_bytes(own.private_bytes(*SHAPE) + certificate(user, own.public_key(), False))
    return folder / "clients.pem"
