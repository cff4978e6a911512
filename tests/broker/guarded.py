"""A broker behind TLS, SASL and ACLs: ACLs alone decide what a user may do."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import jwt
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kafka.protocol.admin import AlterClientQuotasRequest

from tests.leader.real import eventually
from tierstate.broker.client_config import bootstrap_addresses
from tierstate.broker.framed_socket import FramedSocket, tls_context
from tierstate.broker.kafka_access import own_login
from tierstate.broker.raw_connection import RawConnection
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
PASSWORDS = {"admin": "a", "guest": "g", "agent": "c", "reader": "r", "operator": "o"}
"""The password of every user; only ``admin`` has all rights."""

EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def self_signed(folder: Path, common_name: str = "sandbox") -> tuple[Path, Path]:
    """Write a certificate of 127.0.0.1 as PEM files, and return the paths (certificate, key with certificate)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "ca.pem").write_bytes(public)
    (folder / "broker.pem").write_bytes(key.private_bytes(*form) + public)
    return folder / "ca.pem", folder / "broker.pem"


def guarded_sandbox(folder: Path, **more: str) -> KafkaSandbox:
    """Return a sandbox that is not yet open. ``folder``: for its certificate. ``more``: properties of its listener."""
    authority, identity = self_signed(folder)
    listener = "listener.name.plaintext"
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    properties = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{listener}.plain.sasl.jaas.config": f'{PLAIN} username="admin" password="a" {users};',
        f"{listener}.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        f"{listener}.oauthbearer.sasl.jaas.config": f'{BEARER} unsecuredLoginStringClaim_sub="admin";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "auto.create.topics.enable": "true",
        "delegation.token.secret.key": "guarded",
        **{f"{listener}.{name.replace('_', '.')}": value for name, value in more.items()},
    }
    client = {"security.protocol": "sasl_ssl", "sasl.mechanisms": "PLAIN", "sasl.username": "admin"}
    client |= {"sasl.password": PASSWORDS["admin"], "ssl.ca.location": str(authority)}
    return KafkaSandbox(properties=properties, client=client)


def binding(
    user: str,
    kind: ResourceType,
    name: str,
    what: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", what, permission)


def set_password(sandbox: KafkaSandbox, user: str, password: bytes) -> None:
    """Set a user's password for SCRAM-SHA-256."""
    admin = AdminClient(sandbox.client_config)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for future in admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, password)]).values():
        future.result(30)


def unsigned_token(user: str, **claims: object) -> str:
    """Return a bearer token that this broker accepts: its check of OAUTHBEARER is Kafka's own for development."""
    payload = {"sub": user, "exp": 4_000_000_000} | claims
    return jwt.encode({name: value for name, value in payload.items() if value is not None}, "", "none")


@contextmanager
def denied(sandbox: KafkaSandbox, *bindings: AclBinding) -> Iterator[None]:
    """Add these ACLs, which deny access whatever else allows it, and delete them after the block."""
    admin = AdminClient(sandbox.client_config)  # its calls end with it
    allow(sandbox, bindings)
    try:
        yield
    finally:
        filters = [
            AclBindingFilter(
                binding.restype,
                binding.name,
                binding.resource_pattern_type,
                binding.principal,
                binding.host,
                binding.operation,
                binding.permission_type,
            )
            for binding in bindings
        ]
        for future in admin.delete_acls(filters).values():
            future.result(30)


def allow(sandbox: KafkaSandbox, bindings: Iterable[AclBinding]) -> None:
    """Add ACLs, and wait until the broker has them: it hears of them a moment after the controller's answer."""
    admin, added = AdminClient(sandbox.client_config), list(bindings)
    for future in admin.create_acls(added).values():
        future.result(30)
    eventually(lambda: set(added) <= set(admin.describe_acls(EVERY_ACL).result(30)))


@contextmanager
def bytes_a_second(sandbox: KafkaSandbox, user: str, rate: float) -> Iterator[None]:
    """Limit the bytes a second that this user may produce, until the block ends."""
    _quota(sandbox, user, "producer_byte_rate", rate)
    try:
        yield
    finally:
        _quota(sandbox, user, "producer_byte_rate", None)


def _quota(sandbox: KafkaSandbox, user: str, name: str, value: float | None) -> None:
    kind, clock, kafka = AlterClientQuotasRequest.EntryData, SystemClock(), sandbox.client_config
    entry = kind([kind.EntityData("user", user)], [kind.OpData(name, value or 0.0, value is None)])
    deadline = clock.monotonic() + 30
    frames = FramedSocket(bootstrap_addresses(kafka)[0], tls_context(kafka), clock, deadline)
    with closing(RawConnection(frames, own_login(kafka), clock, deadline)) as connection:
        answer = connection.ask(AlterClientQuotasRequest([entry], False), deadline)
    assert [entry.error_code for entry in answer.entries] == [0]
