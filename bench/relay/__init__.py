"""A relay in C that inspects nothing, before a broker: what a process costs that receives and sends every byte."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tierstate.sandbox.kafka import KafkaSandbox

from ..kroxylicious import free_ports

HERE = Path(__file__).parent
LISTENERS = ("listeners", "advertised.listeners")


@contextmanager
def relay(kafka: KafkaSandbox, folder: Path) -> Iterator[tuple[str, int]]:
    """Restart the broker with a listener that advertises the relay. Yield the relay's address and its process id."""
    program = folder / "relay"
    subprocess.run(["cc", "-O2", "-pthread", "-o", program, HERE / "relay.c"], check=True)
    here = free_ports(2)
    there = here + 1
    _advertise(kafka, here, there)
    with subprocess.Popen([program, str(here), str(there)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "up\n":
                raise SystemExit("the relay does not listen")
            yield f"127.0.0.1:{here}", process.pid
        finally:
            process.terminate()


def _advertise(kafka: KafkaSandbox, here: int, there: int) -> None:
    """Restart the broker with one more listener, whose clients are sent to the relay."""
    (broker,) = kafka.brokers
    kafka.stop(0)
    path = broker.folder / "server.properties"
    properties = dict(line.split("=", 1) for line in path.read_text().splitlines())
    for name, port in zip(LISTENERS, (there, here), strict=True):
        properties[name] += f",RELAY://127.0.0.1:{port}"
    properties["listener.security.protocol.map"] += ",RELAY:PLAINTEXT"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    kafka.start(0)
