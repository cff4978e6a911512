"""The proxy server: an event loop on a separate thread, with one task for each connection.

The constructor binds the first port, so the caller knows it. Clients are accepted once `process` runs.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import uvloop

from ..fetch.reader import LogReader
from ..runtime.clock import Clock
from ..runtime.listening import listen_at
from ..runtime.pool import Pool
from ..runtime.proxy_settings import Proxy
from ..runtime.service import Service
from ..runtime.setting_types import Address
from ..runtime.watchdog import alive, loop
from ..state.errors import BrokerUnavailable, TierstateError
from ..state.offsets import Offset
from .budget import Budget
from .codes import Counts
from .deletions import Deletions
from .fetch_request import Place
from .fetches import ProxyParts
from .known_bounds import KnownBounds
from .listeners import ANY, BACKLOG, Listeners, tls_of
from .older_offsets import OlderOffsets
from .peer import Peer
from .read_log import ReadLog
from .relay import Relay
from .remote_reads import RemoteReads
from .replica import Replica
from .replica_answers import NODE, Bucket
from .topic_names import TopicNames

CONNECT_S = 10.0
TICK_S = 1.0
RESERVED_FILES = 128
"""File descriptors kept for other uses: the view, the store, the chunk cache and connections that are refused."""
SAID_EVERY_S = 60.0
STOP_S = 3.0
"""The longest time that a stop waits for connections to end, in seconds."""
METADATA_CALLS = 8
BrokerAddress = tuple[str, int]
Warn = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers' addresses, for bootstrap and by node id, and the TLS context for connections to them.

    The proxy presents no client certificate: all clients would get its identity (`client_config.in_their_name`).
    ``bucket``: there are no brokers, and a `Replica` of it answers in their place.
    """

    bootstrap: Sequence[BrokerAddress] = ()
    nodes: Mapping[int, BrokerAddress] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    bucket: Bucket | None = None


def most_clients(connections: int, files_each: int = 2) -> tuple[int, str]:
    """Return the most clients at a time, and the name of the limit. Each client also needs a connection to a broker, or
    both ends of one to a `Replica`: ``files_each``.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(1, (files - RESERVED_FILES) // files_each)
    if files == resource.RLIM_INFINITY or connections <= most:
        return connections, "proxy.connections"
    return most, f"{files} open files: raise `ulimit -n`, or LimitNOFILE of the unit"


class ProxyServer:
    """The proxy. The constructor binds its port, or raises InvalidSettings. `process` serves the clients."""

    def __init__(
        self,
        reader: LogReader,
        brokers: Brokers,
        settings: Proxy,
        clock: Clock,
        read_log: ReadLog,
        warn: Warn,
        *,
        whole_log: bool = False,
    ) -> None:
        """``whole_log``: the brokers serve both tiers themselves (KIP-405)."""
        self._whole_log = whole_log
        self._reader, self._brokers, self._settings, self._clock = reader, brokers, settings, clock
        self._read_log, self._warn = read_log, warn
        self._tls = tls_of(settings)
        self._socket = listen_at(settings.listen, "proxy", BACKLOG)
        self.address = Address(settings.reachable, self._socket.getsockname()[1])
        """The address for clients' ``bootstrap.servers``."""
        self.counts, self.budget = Counts(), Budget(settings.memory, self._takes_nothing)
        self._remote = Pool("proxy-remote", settings.remote_reads)
        self._metadata = Pool("proxy-metadata", METADATA_CALLS)
        self._replica = None if brokers.bucket is None else Replica(brokers.bucket, self._metadata, clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = count()
        self._most, self._most_by = most_clients(settings.connections, 2 if brokers.bucket is None else 3)
        self._said_full = float("-inf")

    def process(self) -> Service:
        """Return the service that serves clients. The caller starts, stops and joins it."""
        return Service("proxy", self._serve, on_stop=self._stop)

    def close(self) -> None:
        """Release the port, and close the thread pools."""
        self._socket.close()
        self._remote.close()
        self._metadata.close()

    def _serve(self, stopping: threading.Event) -> None:
        with loop("proxy"):
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._main(stopping))

    def _stop(self) -> None:
        if self._loop is not None and self._over is not None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._over.set)

    async def _main(self, stopping: threading.Event) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        listeners = Listeners(self._socket, self._settings, self._tls, self._accept)
        remote_reads = RemoteReads(self._reader, self._remote, self.budget, self._failed)
        bounds = KnownBounds(self._reader, self._metadata)
        older = OlderOffsets(self._reader, self._metadata, self._remote, self.counts, self._failed)
        self._parts = ProxyParts(
            remote_reads=remote_reads,
            bounds=bounds,
            names=TopicNames(self._reader, self._metadata),
            older=older,
            deletions=Deletions(self._reader, self._metadata, self.counts, self._warn),
            listeners=listeners,
            counts=self.counts,
            read_log=self._read_log,
            read_only=self._settings.read_only or self._replica is not None,
            remote_wait_s=self._settings.remote_wait,
            whole_log=self._whole_log,
        )
        await listeners.open(ANY if self._replica is None else NODE)
        # open all now: several proxies may share one address, and each needs every port that the others advertise
        await listeners.ensure(self._brokers.nodes)
        try:
            while not (stopping.is_set() or self._over.is_set()):
                alive()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), TICK_S)
        finally:
            listeners.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=STOP_S)
            remote_reads.close()
            bounds.close()

    def _accept(self, client: Peer, node: int | None) -> None:
        if len(self._tasks) >= self._most:
            self.counts.turned_away += 1
            client.abort()
            if (now := self._clock.monotonic()) - self._said_full >= SAID_EVERY_S:
                self._said_full = now
                self._warn("clients are turned away", connections=self._most, limit=self._most_by)
            return
        task = asyncio.get_running_loop().create_task(self._relay(client, node))
        self._tasks.add(task)
        self.counts.connections = len(self._tasks)
        task.add_done_callback(self._ended)

    def _takes_nothing(self, client: Peer) -> None:
        self.counts.malformed += 1
        self._warn(
            "a connection is closed", client=client.address, reason="it takes nothing, and others need its memory"
        )
        client.abort()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.counts.connections = len(self._tasks)
        if not task.cancelled() and (error := task.exception()) is not None:  # a bug in the proxy ends one connection
            self._warn("a connection ended by an error of the proxy", reason=repr(error))

    async def _relay(self, client: Peer, node: int | None) -> None:
        try:
            try:
                broker = await self._connected(node)
            except (OSError, TimeoutError, TierstateError) as error:
                self._warn("no connection to the broker", broker_id=node, reason=str(error) or repr(error))
                return
            await Relay(client, broker, self._parts).run()
        except TierstateError as error:
            self.counts.malformed += 1
            self._warn("a connection is closed", client=client.address, reason=str(error))
        finally:
            client.close()

    async def _connected(self, node: int | None) -> Peer:
        """Connect to the broker with this id, or to any broker. Raises OSError, TimeoutError, BrokerUnavailable."""
        if self._replica is not None:
            return await self._replica.connected()
        nodes = self._parts.listeners.nodes
        if node is not None:
            addresses = [nodes[node]] if node in nodes else []
        else:
            every_address = list(dict.fromkeys([*nodes.values(), *self._brokers.bootstrap]))
            turn = next(self._turns) % len(every_address)
            addresses = every_address[turn:] + every_address[:turn]
        failed: Exception | None = None
        for host, port in addresses:
            try:
                async with asyncio.timeout(CONNECT_S):
                    connecting = asyncio.get_running_loop().create_connection(Peer, host, port, ssl=self._brokers.tls)
                    return (await connecting)[1]
            except (OSError, TimeoutError) as error:
                failed = error
        raise BrokerUnavailable("no broker accepts a connection", reason=failed)

    def _failed(self, place: Place, offset: Offset, error: BaseException) -> None:
        self._warn("a remote read failed", partition=f"{place[0]}-{place[1]}", offset=offset, reason=str(error))
