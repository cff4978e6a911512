"""A gateway in a process of its own, over batches in memory: twelve of 1 MiB, and one of 200 MiB of zeros.

In its remote form it has sixteen of 256 KiB in the remote tier, whose answers are kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.api.gateways import MemoryReader
from tests.log.batches import TIME, ZSTD, Batch, record
from tests.rules.test_recovery import segment
from tierstate.fetch.piece import Fetched
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.routing import Isolation, ReadRemote, Tier

MIB = 1 << 20


class Prepared(MemoryReader):
    """Reads batches of one record, packed by a codec."""

    def add(self, value: bytes, codec: int = ZSTD) -> int:
        """Append a batch of this value, and return its stored size in bytes."""
        self.batches.append(Batch(len(self.batches), [record(0, b"k", value)], codec, time=TIME).bytes)
        return len(self.batches[-1])


class Remote(Prepared):
    """Reads batches that are all in one segment of the remote tier."""

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, isolation: Isolation, tier: Tier
    ) -> Fetched:
        self.local_start = len(self.batches)
        piece = super().fetch(topic, partition, offset, max_bytes=max_bytes, isolation=isolation, tier=tier)
        read = ReadRemote(
            segment(1, 0, len(self.batches) - 1, (0, 0)), OffsetRange(Offset(offset), Offset(len(self.batches) - 1))
        )
        return replace(piece, read=read)

    def route_at_hand(
        self, topic: str, partition: int, offset: int, *, isolation: Isolation, tier: Tier
    ) -> Fetched | None:
        return self.fetch(topic, partition, offset, max_bytes=1, isolation=isolation, tier=tier)


@dataclass
class BombedGateway:
    process: subprocess.Popen[str]
    url: str
    address: tuple[str, int]

    def memory(self) -> dict[str, int]:
        """Return the memory of the service: used, most_used, refused."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        figures: dict[str, int] = json.loads(self.process.stdout.readline())
        return figures

    def resident(self) -> int:
        """Return the resident memory of the process, in bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def bombed_gateway(budget: int, max_bytes: int, *, remote: bool = False) -> Iterator[BombedGateway]:
    command = [sys.executable, "-m", "tests.api.bombed", str(budget), str(max_bytes), *(["remote"] if remote else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            host, port = json.loads(process.stdout.readline())
            yield BombedGateway(process, f"http://{host}:{port}", (host, port))
        finally:
            process.kill()


def _serve(budget: int, max_bytes: int, *, remote: bool) -> None:
    from tierstate.api.open import GatewayServer
    from tierstate.api.service import FetchService
    from tierstate.runtime.allocator import keep_buffers_of_reads
    from tierstate.runtime.clock import SystemClock
    from tierstate.runtime.gateway_settings import Gateway
    from tierstate.runtime.setting_types import Address

    keep_buffers_of_reads()
    reader = Remote() if remote else Prepared()
    for _ in range(16 if remote else 12):
        reader.add(os.urandom(MIB // 4 if remote else MIB))
    if not remote:
        reader.add(bytes(200 * MIB))
    many: Any = {"connections": 4096, "connections_per_address": 4096}
    settings = Gateway(listen=Address("127.0.0.1", 0), memory=budget, max_bytes=max_bytes, **many)
    service = FetchService(reader, settings, SystemClock())
    server = GatewayServer(service, settings)
    server.process().start()
    print(json.dumps([server.address.host, server.address.port]), flush=True)
    memory = service.memory
    for _ in sys.stdin:
        figures = {"used": memory.used, "most_used": memory.most_used, "refused": memory.refused}
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), remote="remote" in sys.argv)
