"""A gateway in a process of its own, over batches in memory: twelve of 1 MiB, and one of 200 MiB of zeros."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.api.gateways import MemoryReader
from tests.log.batches import TIME, ZSTD, Batch, record

MIB = 1 << 20


class Prepared(MemoryReader):
    """Reads batches of one record, packed by a codec."""

    def add(self, value: bytes, codec: int = ZSTD) -> int:
        """Append a batch of this value, and return its stored size in bytes."""
        self.batches.append(Batch(len(self.batches), [record(0, b"k", value)], codec, time=TIME).bytes)
        return len(self.batches[-1])


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
def bombed_gateway(budget: int, max_bytes: int) -> Iterator[BombedGateway]:
    command = [sys.executable, "-m", "tests.api.bombed", str(budget), str(max_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            host, port = json.loads(process.stdout.readline())
            yield BombedGateway(process, f"http://{host}:{port}", (host, port))
        finally:
            process.kill()


def _serve(budget: int, max_bytes: int) -> None:
    from tierstate.api.open import GatewayServer
    from tierstate.api.service import FetchService
    from tierstate.runtime.allocator import keep_buffers_of_reads
    from tierstate.runtime.clock import SystemClock
    from tierstate.runtime.gateway_settings import Gateway
    from tierstate.runtime.setting_types import Address

    keep_buffers_of_reads()
    reader = Prepared()
    for _ in range(12):
        reader.add(os.urandom(MIB))
    reader.add(bytes(200 * MIB))
    settings = Gateway(listen=Address("127.0.0.1", 0), memory=budget, max_bytes=max_bytes, connections=4096)
    service = FetchService(reader, settings, SystemClock())
    server = GatewayServer(service, settings)
    server.process().start()
    print(json.dumps([server.address.host, server.address.port]), flush=True)
    memory = service.memory
    for _ in sys.stdin:
        figures = {"used": memory.used, "most_used": memory.most_used, "refused": memory.refused}
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
