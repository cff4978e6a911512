"""The listeners at which clients reach each broker. A node's port is open before any answer names this port.

    port P      bootstrap: any broker
    P + 1 + n   the broker with node id n

With P = 0 every listener takes a free port. With ``proxy.sni`` there is one port, and the server name in the client's
TLS handshake (RFC 6066, 3) selects the broker. A listener stays open when its node vanishes from the metadata, because
the node may be restarting. Until the node is back, connections to this listener are closed at once.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary

from ..runtime.listening import server_tls
from ..runtime.live_tls import LiveTls
from ..runtime.proxy_settings import Proxy
from ..runtime.settings import HIGHEST_PORT
from ..state.errors import InvalidSettings, Unavailable
from .addresses import Address
from .peer import Peer

BACKLOG = 1024
ANY = None
"""The node of the bootstrap listener, which connects to any broker."""
Accept = Callable[[Peer, int | None], None]
NODE = "{node}"


class Listeners:
    """The listeners of one event loop. ``accept`` is called with every connection and its node, or `ANY`."""

    def __init__(self, first: socket.socket, settings: Proxy, tls: LiveTls | None, accept: Accept) -> None:
        """``first``: the bound socket of the bootstrap listener."""
        self._first, self._listen, self._advertised = first, settings.listen, settings.reachable
        self._port_of = settings.port_of
        self._tls, self._accept = tls, accept
        self._servers: dict[int | None, asyncio.Server] = {}
        self._names = None if settings.sni is None or tls is None else _Names(settings.sni, tls)
        self._lock = asyncio.Lock()
        self.nodes: dict[int, tuple[str, int]] = {}
        """The brokers' own addresses by node id, from the latest answers."""

    async def open(self, only: int | None = ANY) -> None:
        """Start the bootstrap listener on its socket. ``only``: the node that clients reach there, if it is the only
        one.
        """
        loop = asyncio.get_running_loop()
        server = loop.create_server(self._accepts(ANY), sock=self._first, ssl=self._tls, backlog=BACKLOG)
        self._servers[only] = self._servers[ANY] = await server

    async def ensure(self, nodes: Mapping[int, Address]) -> dict[int, Address]:
        """Return the advertised address of every node, and open missing listeners. Raises Unavailable if this fails."""
        address_of: dict[int, Address] = {}
        for node, (host, port) in nodes.items():
            if node < 0 or not host:
                continue  # the answer has no broker in this entry
            self.nodes[node] = host, port
            if self._names is not None:
                address_of[node] = self._names.host_of(node), self._first.getsockname()[1]
                continue
            async with self._lock:
                server = self._servers.get(node)
                opened = await self._open(node, self._port_of(node)) if server is None else _port(server)
            address_of[node] = self._advertised, opened
        return address_of

    def close(self) -> None:
        """Stop accepting connections on all listeners."""
        for server in self._servers.values():
            server.close()

    async def _open(self, node: int, port: int) -> int:
        if port > HIGHEST_PORT:
            raise Unavailable("no port for a broker: choose a lower proxy.listen", broker_id=node, port=port)
        try:
            server = await asyncio.get_running_loop().create_server(
                self._accepts(node), self._listen.host, port, ssl=self._tls, backlog=BACKLOG
            )
        except OSError as error:
            raise Unavailable("cannot listen for a broker", broker_id=node, port=port, reason=error) from error
        self._servers[node] = server
        return _port(server)

    def _accepts(self, node: int | None) -> Callable[[], Peer]:
        return lambda: _Accepted(self._accept, node, self._names)


class _Names:
    """The host names of brokers that share one port. ``pattern`` contains ``{node}``. ``tls`` gets a callback that
    remembers each client's server name.
    """

    def __init__(self, pattern: str, tls: LiveTls) -> None:
        before, _, after = pattern.partition(NODE)
        self._before, self._after = before, after
        self._server_names: WeakKeyDictionary[object, str] = WeakKeyDictionary()
        tls.each(self._prepare)

    def host_of(self, node: int) -> str:
        return f"{self._before}{node}{self._after}"

    def node_of(self, connection: object) -> int | None:
        """Return the node of the server name in an `SSLObject`'s handshake, or `ANY` if it is no broker's name."""
        name = self._server_names.get(connection, "")
        number = name.removeprefix(self._before).removesuffix(self._after)
        return int(number) if number.isdecimal() and name == self.host_of(int(number)) else ANY

    def _prepare(self, context: ssl.SSLContext) -> None:
        context.sni_callback = self._remember

    def _remember(self, connection: object, name: str | None, context: ssl.SSLContext) -> None:
        self._server_names[connection] = name or ""


class _Accepted(Peer):
    def __init__(self, accept: Accept, node: int | None, names: _Names | None) -> None:
        super().__init__()
        self._tell, self._node, self._names = accept, node, names

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        named = None if self._names is None else self._names.node_of(transport.get_extra_info("ssl_object"))
        self._tell(self, self._node if named is None else named)


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


def tls_of(settings: Proxy) -> LiveTls | None:
    """Return the TLS context for clients, or None without TLS. Raises InvalidSettings for unusable files or `sni`."""
    tls = settings.tls
    if settings.sni is not None and (settings.sni.count(NODE) != 1 or tls.certificate is None):
        raise InvalidSettings([f"proxy.sni: needs a host name that contains {NODE}, and proxy.tls"])
    return server_tls("proxy", tls.certificate, tls.key)
