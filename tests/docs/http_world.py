"""The gateways of `docs/http.md`: twelve orders in two tiers, served by an open gateway and by a guarded one."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.api.gateways import StandIn
from tests.broker.guarded import self_signed
from tests.fetch.two_tiers import NOW, Folder, FolderTier, TwoTiers
from tierstate.api.app import create_app
from tierstate.api.open import GatewayServer
from tierstate.api.service import FetchService
from tierstate.app.operating.plans import Leasing, Plans
from tierstate.broker.groups import GroupPosition, TopicGroups
from tierstate.broker.sasl import Login
from tierstate.fetch.reader import LogReader
from tierstate.lake.table_status import TableStatus
from tierstate.log.batch import iter_batches
from tierstate.log.indexes import TimeIndexBuilder
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth, GatewayTls
from tierstate.runtime.id_source import RandomIds
from tierstate.runtime.setting_types import Address
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.offsets import Offset
from tierstate.storage.memory import MemoryStore

TOPIC = "orders"
ORDERS, A_BATCH, A_SEGMENT = 12, 2, 4
PLACE = TopicIdPartition(TopicId.of(b"orders-topic-id!"), 0)


@dataclass(frozen=True)
class Gateways:
    """``guarded``: TLS, tokens, a quota that one read exceeds; its certificate is its own authority."""

    open: str
    guarded: str
    certificate: Path


@contextmanager
def gateways(folder: Path) -> Iterator[Gateways]:
    """Run both gateways on loopback until the block ends."""
    with ExitStack() as opened:
        reader, plans = opened.enter_context(_orders(_log_folder(folder / "orders-0")))
        certificate, key = self_signed(folder)
        tokens = folder / "tokens"
        tokens.write_text(f"sha256:{hashlib.sha256(b'secret-of-ann').hexdigest()} ann\n")
        tokens.chmod(0o600)
        here = Address("127.0.0.1", 0)
        guarded = Gateway(
            listen=here,
            quota=1,
            tls=GatewayTls(certificate=certificate, key=key),
            auth=GatewayAuth(tokens=tokens, rights="gateway"),
        )
        unguarded = opened.enter_context(_served(reader, plans, Gateway(listen=here)))
        yield Gateways(unguarded, opened.enter_context(_served(reader, plans, guarded)), certificate)


class Groups(StandIn):  # type: ignore[misc]
    """The positions of two groups: one in the remote tier, and one at the end."""

    def groups(self, who: Login | str | None, topic: str, partitions: Sequence[int]) -> TopicGroups:
        return TopicGroups((GroupPosition("audit", 0, Offset(5)), GroupPosition("billing", 0, Offset(ORDERS))))


def app() -> FastAPI:
    """Return the routes with their descriptions; there is nothing behind them."""
    nobody: Any = None
    service = FetchService(nobody, Gateway(), SystemClock())
    return create_app(service)


@contextmanager
def _served(reader: LogReader, plans: Plans, settings: Gateway) -> Iterator[str]:
    service = FetchService(reader, settings, SystemClock(), hidden=("_tier-state",), plans=plans, groups=Groups())
    table = TableStatus("kafka.orders", TOPIC, rows=8, files=1, lag=4, lag_seconds=41.5, state="behind")
    table.last_commit = "2026-01-01T00:00:12Z"
    service.tables = lambda: [asdict(table)]
    server = GatewayServer(service, settings)
    process = server.process()
    process.start()
    try:
        yield server.url
    finally:
        process.stop()
        assert process.join(20)
        server.close()


@contextmanager
def _orders(folder: Folder) -> Iterator[tuple[LogReader, Plans]]:
    """Yield a reader and plans without leases. All segments but the last are copied; the broker has the last alone."""
    store, clock = MemoryStore(SystemClock()), SystemClock()
    tiers = TwoTiers(PLACE, TOPIC, store)
    with closing(tiers.view):
        tiers.copy_all(folder)
        local = FolderTier(folder, PLACE, TOPIC)
        local.local_start = folder.bases[-1]
        reader = tiers.reader(local)
        yield (
            reader,
            Plans(
                reader,
                store,
                None,
                Leasing(lambda ranges, holder, seconds: (), lambda places, holder: 1, 3600),
                clock,
                RandomIds(),
            ),
        )


def _log_folder(path: Path) -> Folder:
    """Write a folder as a broker would leave it, without the files that readers do not use."""
    path.mkdir()
    (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for base in range(0, ORDERS, A_SEGMENT):
        log = b"".join(_batch(first) for first in range(base, base + A_SEGMENT, A_BATCH))
        (path / f"{base:020d}.log").write_bytes(log)
        index = TimeIndexBuilder(base)
        for batch in iter_batches(log, source="orders-0"):
            index.add(batch, indexed=True)
        (path / f"{base:020d}.timeindex").write_bytes(index.bytes())
    return Folder(path)


def _batch(first: int) -> bytes:
    builder: Any = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 16)
    for at in range(A_BATCH):
        number = first + at
        value = json.dumps({"order": number, "item": f"item-{number}", "price": number / 100}).encode()
        builder.append(at, NOW + number * 60_000, b"customer-%d" % number, value, [])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, first)
    data[12:16] = bytes(4)  # the leader epoch, which the broker fills in
    return bytes(data)
