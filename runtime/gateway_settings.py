"""The HTTP gateway's sections of `settings.py`: address, authentication of callers, limits of a call, registry."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from .setting_types import Address, Duration, HttpUrl, Listen, Names, Patterns, Section, Size

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class GatewayTls(Section):
    """TLS of the gateway; on when certificate and key are set."""

    certificate: Path | None = None
    """Certificate chain, PEM."""
    key: Path | None = None
    """Private key, PEM."""
    client_ca: Path | None = None
    """Clients must show a certificate signed by these, PEM."""


class GatewayJwt(Section):
    """Bearer tokens that an identity provider signed (OpenID Connect)."""

    issuer: str = ""
    """Whose tokens are taken: their `iss`. Unset: none are."""
    audience: str = ""
    """Whom they must be for: their `aud`."""
    keys: str = ""
    """The provider's keys (JWKS): an https:// URL, asked again for a key that is not known; or a file, read again when
    it changes."""
    principal: str = "sub"
    """The claim that is the Kafka user's name."""


class GatewayAuth(Section):
    """The logins that are accepted, and the rights that count."""

    rights: Literal["kafka", "gateway"] = "kafka"
    """`kafka`: a caller reads what Kafka's own ACLs let that user read. `gateway`: whatever the gateway itself may
    read."""
    tokens: Path | None = None
    """File of bearer tokens: a line each, `sha256:DIGEST user [expiry]`."""
    basic: bool = False
    """Take users' own Kafka names and passwords by HTTP Basic; the brokers check them."""
    mechanism: Mechanism | None = None
    """SASL mechanism for those; unset: the gateway's own, else SCRAM-SHA-256."""
    oauthbearer: bool = False
    """Take bearer tokens that Kafka takes (SASL/OAUTHBEARER); the brokers check them. `jwt.principal` is the claim that
    names their user in quotas, plans and the log."""
    certificates: Literal["cn", "subject"] | None = None
    """With tls.client_ca: a client's certificate says who it is, by its common name or its whole subject (RFC 4514, as
    Kafka writes it)."""
    cache: Duration = Field(default=5.0, ge=0, le=60)
    """How long an answer of Kafka about a caller's rights is used: an ACL that is taken away holds so much longer."""
    behind_tls: bool = False
    """Something before the gateway ends TLS: passwords may come. Data keys are handed out where one of
    `gateway.trusted_proxies` says https."""
    anonymous: bool = False
    """Clients need no login, although other machines may reach the gateway."""
    jwt: GatewayJwt = GatewayJwt()

    @property
    def asks(self) -> bool:
        """True if callers must prove who they are."""
        return self.tokens is not None or self.by_login or self.certificates is not None or bool(self.jwt.issuer)

    @property
    def by_login(self) -> bool:
        """True if callers send the credentials that they would send to brokers themselves."""
        return self.basic or self.oauthbearer


class Gateway(Section):
    """The HTTP fetch gateway."""

    listen: Listen = Address("127.0.0.1", 8080)
    """Where it answers; port 0 takes a free one."""
    topics: Patterns = ()
    """Which topics are served at all; empty: the tiered ones."""
    hosts: Names = ()
    """Names by which it may be called (the Host header). Empty: any, but this machine's own names only where no login
    is asked for."""
    trusted_proxies: Names = ()
    """Addresses and networks of reverse proxies whose X-Forwarded-Proto and X-Forwarded-For are believed. Empty:
    none."""
    agents: Names = ()
    """Hosts whose agents may be asked why something is not copied. Empty: those that the tier-state topic names."""
    max_bytes: Size = Field(default=16 * 2**20, ge=1024)
    """The most record bytes one answer holds as stored, and the most that one batch may unpack to."""
    memory: Size = Field(default=512 * 2**20, ge=16 * 2**20)
    """What all answers together hold; what does not fit is 429."""
    scan_bytes: Size = Field(default=64 * 2**20, ge=1)
    """Bytes of batches, unpacked, that a call looks through for a key or a text; a MiB or a batch more."""
    local_reads: int = Field(default=16, ge=1, le=1024)
    """Local reads at a time."""
    remote_reads: int = Field(default=16, ge=1, le=1024)
    """Remote reads at a time."""
    connections: int = Field(default=1024, ge=1, le=1_000_000)
    """Connections at a time; calls on more are answered 503."""
    head_timeout: Duration = Field(default=10.0, gt=0)
    """How long a request's head may take, from the connection or its first byte; and its body."""
    write_timeout: Duration = Field(default=30.0, gt=0)
    """How long a client may take nothing of its answer, 64 KiB at least."""
    url_lifetime: Duration = Field(default=900.0, ge=0, le=43_200)
    """How long a URL reads one object of the store that a plan's reader is given; `0`: none is given, the gateway hands
    out the bytes itself."""
    quota: Size = 0
    """Bytes a second one principal reads; 0: no limit."""
    access_log: Path | None = None
    """The access log: a JSON line for each read; unset: none."""
    tls: GatewayTls = GatewayTls()
    auth: GatewayAuth = GatewayAuth()

    @property
    def of_this_machine(self) -> bool:
        """True if the gateway listens on loopback only, so that no other machine can reach it."""
        return self.listen.of_this_machine


class Registry(Section):
    """A schema registry, for a gateway that shows values as JSON, and for exports and tables of typed columns."""

    url: HttpUrl = ""
    """Its address, the only one that is asked; empty: none."""
    user: str = ""
    """Name for HTTP Basic; empty: none is sent."""
    password: SecretStr | None = None
    """The password of `user`, or the secret of an API key."""
    ca: Path | None = None
    """Authorities of its certificate, PEM; unset: the system's."""
    certificate: Path | None = None
    """Our certificate, where it asks for one, PEM."""
    key: Path | None = None
    """Private key of `certificate`, PEM."""
    timeout: Duration = Field(default=3.0, gt=0, le=60)
    """How long one answer of a gateway waits for all its schemas, and an export or a table for one."""
    cache: Size = 16 * 2**20
    """Bytes of schemas that a gateway keeps."""

    @model_validator(mode="after")
    def _together(self) -> Registry:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key are needed together")
        return self
