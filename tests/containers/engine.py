"""A Docker engine for the tests: the one that answers already, or one that is started for them and leaves nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

GUARD = Path(__file__).with_name("engine_guard.py")
PROGRAMS = ("docker", "dockerd", "containerd", "runc", "docker-compose", "debootstrap")


@dataclass(frozen=True)
class Engine:
    """``folder``: of the engine that was started for the tests, None for one that others use as well."""

    environment: dict[str, str]
    folder: Path | None

    def run(self, *command: str, text: str | None = None, timeout: float = 1800) -> str:
        """Run a command against this engine and return its output. A failure shows both of its outputs."""
        environment = os.environ | self.environment
        done = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def docker(self, *arguments: str, text: str | None = None, timeout: float = 1800) -> str:
        return self.run("docker", *arguments, text=text, timeout=timeout)

    def build(self, context: Path, tag: str, *arguments: str) -> None:
        """Build an image. With the engine of the tests, the build reaches what listens on loopback."""
        network = ["--network", "host"] if self.folder else []
        self.docker("build", *network, "--tag", tag, *arguments, str(context))


def usable() -> Engine | None:
    """Return the engine of this machine, if it answers."""
    if shutil.which("docker") is None:
        return None
    answers = subprocess.run(["docker", "info"], capture_output=True).returncode == 0
    return Engine({}, None) if answers else None


def missing() -> str:
    """Return the reason why no engine can be started here; empty if one can."""
    if os.getuid() != 0:
        return "starting a container engine needs root"
    programs = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"no {', '.join(programs)} on the PATH" if programs else ""


def skip_or_fail(reason: str) -> None:
    """Skip with the reason; fail if this is CI."""
    if os.environ.get("TIERSTATE_CI") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def started() -> Iterator[Engine]:
    """Start an engine and stop it at the end, also if this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="tierstate-engine-"))
    guard = subprocess.Popen(
        [sys.executable, str(GUARD), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is for us: the guard sees us end
    )
    assert guard.stdin is not None
    assert guard.stdout is not None
    try:
        answer = guard.stdout.readline().strip()
        assert answer == "ready", f"the engine did not start: {answer}"
        environment = {
            "DOCKER_HOST": f"unix://{folder}/socket",
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_DOCKER_CLI_BUILD": "0",
        }
        yield Engine(environment | {"DOCKER_CONFIG": str(folder / "client")}, folder)
    finally:
        guard.stdin.close()
        guard.wait(400)
