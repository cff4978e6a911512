"""A gateway that takes every kind of login, over topics of which a Kafka user may read some."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path

import httpx
import jwt
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.api.gateways import write_keys
from tests.broker.guarded import PASSWORDS, unsigned_token
from tests.scenarios.house import House, Running

READ, DESCRIBE, WRITE, DENY = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.WRITE, AclPermissionType.DENY
TOPIC, ALLOW = ResourceType.TOPIC, AclPermissionType.ALLOW
BINDINGS: dict[str, tuple[list[tuple[AclOperation, AclPermissionType]], str]] = {
    "may-read": ([(READ, ALLOW)], "reads"),
    "by-prefix": ([], "reads"),
    "may-describe": ([(DESCRIBE, ALLOW)], "knows"),
    "may-write": ([(WRITE, ALLOW)], "knows"),
    "is-denied": ([(READ, ALLOW), (AclOperation.ALL, DENY)], "nothing"),
    "has-none": ([], "nothing"),
}
"""The bindings of ``guest``, and what they allow."""
RECORDS_PATH = "/partitions/0/records?offset=0"
WAYS = ["basic", "token", "provider", "certificate", "relayed"]
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Guarded:
    house: House
    running: Running
    url: str
    relaying: str
    """The URL of a gateway that takes Kafka's own bearer tokens, and may make no delegation token."""
    authority: Path
    clients: Path

    def topic(self, name: str) -> str:
        return f"{self.house.name}-{name}"

    def client(self, way: str, user: str = "guest") -> httpx.Client:
        headers, context = {}, ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.clients.with_name(f"{user if way == 'certificate' else 'nobody'}.pem"))
        if way == "basic":
            headers = basic(user, PASSWORDS[user])
        elif way == "token":
            headers = {"authorization": f"Bearer token-of-{user}"}
        elif way == "provider":
            now = datetime.datetime.now(datetime.UTC)
            claims = {"iss": "https://who.example", "aud": "t", "sub": user, "exp": now + datetime.timedelta(hours=1)}
            headers = {"authorization": f"Bearer {jwt.encode(claims, KEY, 'RS256', headers={'kid': 'one'})}"}
        elif way == "relayed":
            headers = {"authorization": f"Bearer {unsigned_token(user)}"}
        url = self.relaying if way == "relayed" else self.url
        return httpx.Client(base_url=url, verify=context, headers=headers, timeout=60)


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def flags(folder: Path, authority: Path, clients: Path) -> list[str]:
    tokens = folder / "tokens"
    digests = {user: hashlib.sha256(f"token-of-{user}".encode()).hexdigest() for user in ("guest", "admin")}
    tokens.write_text("".join(f"sha256:{digest} {user}\n" for user, digest in digests.items()))
    tokens.chmod(0o600)
    write_keys(folder / "keys.json", ("one", RSAAlgorithm.to_jwk(KEY.public_key())))
    identity = authority.with_name("broker.pem")
    sets = {
        "listen": "127.0.0.1:0",
        "tls.certificate": identity,
        "tls.key": identity,
        "tls.client_ca": clients,
        "auth.tokens": tokens,
        "auth.basic": "true",
        "auth.certificates": "cn",
        "auth.cache": "0s",
        "auth.jwt.issuer": "https://who.example",
        "auth.jwt.audience": "t",
        "auth.jwt.keys": folder / "keys.json",
    }
    return [flag for name, value in sets.items() for flag in ("--set", f"gateway.{name}={value}")]


def relaying_flags(authority: Path) -> list[str]:
    identity = authority.with_name("broker.pem")
    sets = {"listen": "127.0.0.1:0", "tls.certificate": identity, "tls.key": identity}
    sets |= {"auth.oauthbearer": "true", "auth.cache": "0s"}
    return [flag for name, value in sets.items() for flag in ("--set", f"gateway.{name}={value}")]
