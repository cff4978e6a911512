"""The proxy's sections of `settings.py`: its addresses, its limits, the requests that it refuses."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from ..state.errors import InvalidSettings
from .setting_types import Address, Duration, Listen, Section, Size


class ProxyTls(Section):
    """TLS between clients and the proxy; on when certificate and key are set."""

    certificate: Path | None = None
    """Certificate chain, PEM."""
    key: Path | None = None
    """Private key, PEM."""


class Proxy(Section):
    """Kafka's protocol in front of both tiers."""

    listen: Listen = Address("127.0.0.1", 9192)
    """What clients bootstrap from. The broker with node id n is reached at this port + 1 + n; port 0 takes a free one
    for each."""
    advertised: str | None = None
    """The host in answers to clients, for all ports. Unset: the one it listens on."""
    sni: str | None = None
    """One port for all: the host names of the brokers, as broker-{node}.kafka.example.com, which a client's TLS asks
    for. Needs proxy.tls. Unset: a port for each."""
    connections: int = Field(default=4096, ge=1, le=1_000_000)
    """Clients' connections at a time."""
    memory: Size = Field(default=256 * 2**20, ge=2**20)
    """The memory of all connections together, without their socket buffers."""
    remote_reads: int = Field(default=16, ge=1, le=1024)
    """Remote reads at a time."""
    remote_wait: Duration = Field(default=0.1, ge=0.0, le=1.0)
    """The longest wait for remote records if brokers have other offsets of the request."""
    read_only: bool = False
    """Refuse whatever writes or changes the cluster."""
    follow: Duration = Field(default=30.0, ge=1.0, le=300.0)
    """With `--source bucket`: how often the archive is listed for new records."""
    principals: Path | None = None
    """With `--source bucket`: file of users, their passwords and the topics that they may read. Unset: every client of
    this machine may read every topic, and other machines cannot connect."""
    access_log: Path | None = None
    """The access log: a JSON line for each read; unset: none."""
    tls: ProxyTls = ProxyTls()

    def port_of(self, broker_id: int) -> int:
        """Return the port for the broker with this node id; 0 takes a free one. It may be above `HIGHEST_PORT`."""
        return self.listen.port + 1 + broker_id if self.listen.port else 0

    @property
    def reachable(self) -> str:
        """The host that clients connect to. Raises InvalidSettings if clients cannot reach the proxy by that name."""
        if self.advertised is None and self.listen.everywhere:
            raise InvalidSettings(
                [f"proxy.advertised: clients cannot be told to connect to {self.listen.host}; name a host"]
            )
        return self.advertised or self.listen.host
