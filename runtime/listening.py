"""The socket and the TLS context of a server, by its section of the settings."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from ..state.errors import InvalidSettings
from .live_tls import LiveTls
from .setting_types import Address


def listen_at(listen: Address, section: str, backlog: int | None = None) -> socket.socket:
    """Return a socket that listens there. Raises InvalidSettings if the address cannot be taken."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        made = socket.create_server((listen.host, listen.port), family=family, backlog=backlog)
        # Accepted sockets inherit this. asyncio does not set it on sockets that are made like this. Without it, every
        # answer of two writes would wait 40 ms for the client's delayed acknowledgement.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except OSError as error:
        raise InvalidSettings([f"{section}.listen: cannot listen on {listen}, {error.strerror}"]) from error


def server_tls(
    section: str, certificate: Path | None, key: Path | None, client_ca: Path | None = None
) -> LiveTls | None:
    """Return the context for clients; None without TLS. Raises InvalidSettings if the files cannot be used.

    ``client_ca``: clients must show a certificate that these authorities signed.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise InvalidSettings([f"{section}.tls: certificate and key are needed together"])
    files = certificate, key

    def make() -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
        context.load_cert_chain(*files)
        context.verify_mode = ssl.CERT_NONE if client_ca is None else ssl.CERT_REQUIRED
        return context

    try:
        return LiveTls(make, files if client_ca is None else (*files, client_ca))
    except (OSError, ssl.SSLError) as error:
        raise InvalidSettings([f"{section}.tls: cannot be used, {error.strerror or error}"]) from error
