"""Kroxylicious without filters, before a broker: the Kafka proxy that people run today, as a peer."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tierstate.sandbox.artifacts import Jars, cached, find_java, sums_of

HERE = Path(__file__).parent
RELEASE = "0.12.0"
PORTS = 2
"""One port to begin at, one for the only broker."""


@contextmanager
def kroxylicious(bootstrap: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Its address and its process id; its files go to ``folder``."""
    jars = Jars(f"kroxylicious-{RELEASE}", "Kroxylicious", HERE / "ivy.xml", RELEASE, sums_of(HERE / "jars.sha256"), 30)
    libs = cached(jars)
    at = f"127.0.0.1:{free_ports(PORTS)}"
    config = folder / "kroxylicious.yaml"
    config.write_text(
        "virtualClusters:\n  - name: bench\n    targetCluster:\n"
        f"      bootstrapServers: {bootstrap}\n    gateways:\n      - name: default\n"
        f"        portIdentifiesNode:\n          bootstrapAddress: {at}\n"
    )
    command = [find_java(), "-Xmx1g", "-cp", f"{libs}/*", str(HERE / "Kroxylicious.java"), str(config)]
    with (
        (folder / "kroxylicious.log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            if "up" not in process.stdout.readline():
                raise SystemExit(f"Kroxylicious did not start: {(folder / 'kroxylicious.log').read_text()[-2000:]}")
            yield at, process.pid
        finally:
            process.terminate()


def free_ports(count: int) -> int:
    """Return the first of ``count`` free ports in a row."""
    for first in range(20_000, 32_000, count):  # below the ports that Linux gives to clients
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise SystemExit("no free ports in a row")
