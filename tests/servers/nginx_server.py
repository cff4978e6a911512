"""The nginx of this machine, with `deploy/nginx.conf` in front of gateways or with another configuration."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.api.certificates import certificates
from tests.scenarios.house import eventually
from tierstate.sandbox.ports import PortLease

CONF = Path(__file__).resolve().parents[2] / "deploy" / "nginx.conf"
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@contextmanager
def nginx(folder: Path, text: str) -> Iterator[int]:
    """Run nginx and yield its port. ``text`` names the pid file and the port of a server; a test has its own ones."""
    ports = PortLease()
    port = ports.take()
    changes = {
        "/run/nginx.pid": f"{folder}/pid",
        "listen 443": f"listen 127.0.0.1:{port}",
        "http {": "http {" + "".join(f"{name}_temp_path {folder}/{name};" for name in TEMPORARY),
    }
    file = folder / "nginx.conf"
    file.write_text(changed(text, changes))
    command = ["nginx", "-p", str(folder), "-c", str(file), "-e", str(folder / "error.log"), "-g", "daemon off;"]
    with subprocess.Popen(command) as process:
        try:
            eventually(lambda: _listens(port))
            yield port
        finally:
            process.terminate()
            ports.release()


def shipped(folder: Path, *gateways: str) -> str:
    """Return the shipped configuration for the addresses of one or two gateways, with a certificate in ``folder``."""
    certificates(folder, "gateway")
    changes = {
        "/var/log/nginx/error.log": f"{folder}/error.log",
        "/etc/tierstate/tls/gateway.pem": f"{folder}/gateway.pem",
        "/etc/tierstate/tls/gateway.key": f"{folder}/gateway.pem",
        "127.0.0.1:8081": gateways[0],
        "127.0.0.1:8082": gateways[-1],
    }
    return changed(CONF.read_text(), changes)


def changed(text: str, changes: Mapping[str, str]) -> str:
    """Return the text with each key replaced by its value. A key that the text does not have once fails the test."""
    for shipped_text, ours in changes.items():
        assert text.count(shipped_text) == 1, shipped_text
        text = text.replace(shipped_text, ours)
    return text


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
