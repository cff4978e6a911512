"""Runs a Docker engine in one folder until its standard input ends, and then removes every trace of it.

    python engine_guard.py FOLDER

The parent holds the other end of standard input, so the engine also stops when the parent is killed. All files, the
socket and the runtime state are in FOLDER. The engine changes neither iptables nor the forwarding of packets. All
containers are in one control group, which is removed as well. Standard library only.

Where raising resource limits is not permitted, runc must not ask for it: the wrapper leaves them as they are.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
STOP_S = 30.0
WRAPPER = """#!{python}
import json, os, sys
arguments = sys.argv[1:]
for flag, value in zip(arguments, arguments[1:]):
    if flag in ("--bundle", "-b"):
        path = os.path.join(value, "config.json")
        with open(path) as file:
            config = json.load(file)
        for name in ("rlimits", "oomScoreAdj"):
            config["process"].pop(name, None)
        with open(path, "w") as file:
            json.dump(config, file)
os.execv({runc!r}, ["runc", *arguments])
"""


def main() -> int:
    folder = Path(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # only the end of standard input stops us
        signal.signal(number, signal.SIG_IGN)
    engine: subprocess.Popen[bytes] | None = None
    try:
        for driver in ("overlay2", "vfs"):
            engine = start(folder, driver)
            if engine is not None:
                break
        if engine is None:
            print((folder / "engine.log").read_text().strip().splitlines()[-1:], flush=True)
            return 1
        print("ready", flush=True)
        sys.stdin.read()
        return 0
    finally:
        if engine is not None:
            stop(folder, engine)
        clean(folder)


def start(folder: Path, driver: str) -> subprocess.Popen[bytes] | None:
    """Return the running engine, or None if it ended instead of answering, for example without this storage driver."""
    wrapper = folder / "runc"
    wrapper.write_text(WRAPPER.format(python=sys.executable, runc=shutil.which("runc")))
    wrapper.chmod(0o755)
    (folder / "daemon.json").write_text(json.dumps({"exec-opts": ["native.cgroupdriver=cgroupfs"]}))
    command: list[str | Path] = [
        "dockerd",
        "--config-file",
        folder / "daemon.json",
        "--host",
        f"unix://{folder}/socket",
    ]
    command += ["--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "pid"]
    command += ["--bridge", "none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
    command += ["--add-runtime", f"quiet={wrapper}", "--default-runtime", "quiet", "--storage-driver", driver]
    command += ["--cgroup-parent", f"/{folder.name}"]
    with (folder / "engine.log").open("ab") as log:
        engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    while engine.poll() is None:
        if docker(folder, "info").returncode == 0:
            return engine
        time.sleep(0.2)
    return None


def docker(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", "--host", f"unix://{folder}/socket", *arguments], capture_output=True, text=True)


def stop(folder: Path, engine: subprocess.Popen[bytes]) -> None:
    """End the containers and the networks while the engine still knows them, then the engine."""
    containers = docker(folder, "ps", "--all", "--quiet").stdout.split()
    if containers:
        docker(folder, "rm", "--force", "--volumes", *containers)
    docker(folder, "network", "prune", "--force")
    engine.terminate()
    with suppress(subprocess.TimeoutExpired):
        engine.wait(STOP_S)
    engine.kill()
    engine.wait()


def clean(folder: Path) -> None:
    """Remove what an engine that was killed leaves: processes, mounts, control groups and files."""
    deadline = time.monotonic() + STOP_S
    while (left := list(processes(folder))) and time.monotonic() < deadline:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.1)
    for mount in reversed(mounts(folder)):
        subprocess.run(["umount", "--lazy", mount], check=False)
    for group in groups(folder):
        for path in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            with suppress(OSError):
                path.rmdir()
        with suppress(OSError):
            group.rmdir()
    shutil.rmtree(folder, ignore_errors=True)


def processes(folder: Path) -> Iterator[int]:
    """Yield the processes in the control group of this engine, and those that name its folder. This one is left out."""
    name = os.fsencode(folder)
    numbers = {int(line) for group in groups(folder) for file in group.rglob("cgroup.procs") for line in file.open()}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if name in path.read_bytes():
                numbers.add(int(path.parent.name))
    for process in numbers - {os.getpid()}:
        with suppress(OSError):
            if os.fsencode(Path(__file__).name) not in Path(f"/proc/{process}/cmdline").read_bytes():
                yield process


def mounts(folder: Path) -> list[str]:
    """Return the mount points below the folder, the outer ones first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(f"{folder}/")]


def groups(folder: Path) -> list[Path]:
    """Return the control groups of this engine: one for each controller, or one for all of them."""
    return [path for path in (GROUPS / folder.name, *GROUPS.glob(f"*/{folder.name}")) if path.is_dir()]


if __name__ == "__main__":
    sys.exit(main())
