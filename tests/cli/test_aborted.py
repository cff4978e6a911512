"""A process that its supervisor aborts because it hangs shows where each of its threads was."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

from tests.scenarios.house import TIERSTATE


def test_a_process_that_waits_for_a_broker_is_watched_already_and_shows_its_stacks_when_it_is_aborted(
    tmp_path: Path,
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONFAULTHANDLER"}
    with (
        socket.create_server(("127.0.0.1", 0)) as broker,  # accepts connections and never answers
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor,
    ):
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(240)
        broker.settimeout(240)
        settings = {
            "kafka.bootstrap.servers": f"127.0.0.1:{broker.getsockname()[1]}",
            "store.url": (tmp_path / "store").as_uri(),
            "state_dir": str(tmp_path / "state"),
        }
        flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        gateway = subprocess.Popen(
            [*TIERSTATE, "gateway", *flags],
            stderr=subprocess.PIPE,
            env=environment | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
        )
        try:
            assert [supervisor.recv(100), supervisor.recv(100)] == [b"READY=1", b"WATCHDOG=1"]
            broker.accept()  # it waits now: faulthandler cannot safely read the stacks of threads that run
        finally:
            gateway.send_signal(signal.SIGABRT)
            stderr = gateway.communicate(timeout=120)[1].decode()
    assert gateway.returncode == -signal.SIGABRT
    assert "cli/gateway.py" in stderr
    assert "runtime/watchdog.py" in stderr, "of every thread"
