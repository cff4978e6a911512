"""Programs of object stores that speak the real protocols: built once a machine, offline afterwards.

Go's and Node's own installers fetch them and check what they fetch against Go's checksum database and npm's lock.

    <cache>/tierstate/stores/versitygw-v1.8.0.lock    held while a process builds
    <cache>/tierstate/stores/versitygw-v1.8.0/        the program; appears whole, by one rename
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tierstate.sandbox.artifacts import Progress, cache_folder, only_one
from tierstate.state.errors import InvalidRequest, Unavailable


@dataclass(frozen=True, slots=True)
class StoreProgram:
    """``installer`` is ``go`` or ``npm``; ``source`` its name for the package; ``file`` the program that it makes."""

    name: str
    installer: str
    source: str
    version: str
    file: str


VERSITYGW = StoreProgram("versitygw", "go", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0", "versitygw")
FAKE_GCS = StoreProgram("fake-gcs-server", "go", "github.com/fsouza/fake-gcs-server", "v1.56.1", "fake-gcs-server")
TOXIPROXY = StoreProgram("toxiproxy", "go", "github.com/Shopify/toxiproxy/v2/cmd/server", "v2.5.0", "server")
AZURITE = StoreProgram("azurite", "npm", "azurite", "3.35.0", "node_modules/.bin/azurite-blob")
INSTALL = {"go": "Go 1.24 or newer (https://go.dev/dl)", "npm": "Node.js with npm (https://nodejs.org)"}


def has_installer(program: StoreProgram) -> bool:
    """Return whether this machine can build it, or has it already."""
    return shutil.which(program.installer) is not None or (_home(program) / program.file).exists()


def store_program(program: StoreProgram, progress: Progress | None = None) -> Path:
    """Return the program's file, built first if this machine has none. Takes minutes the first time, nothing later.

    Errors: InvalidRequest (the installer is missing), Unavailable (it failed; the message has its last line).
    """
    home = _home(program)
    if not (home / program.file).exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with only_one(home.with_name(home.name + ".lock")):
            if not (home / program.file).exists():  # the holder of the lock may have built it
                _build(program, home, progress or (lambda line: None))
    return home / program.file


def _home(program: StoreProgram) -> Path:
    return cache_folder() / "stores" / f"{program.name}-{program.version}"


def _build(program: StoreProgram, home: Path, progress: Progress) -> None:
    tool = shutil.which(program.installer)
    if tool is None:
        raise InvalidRequest(f"{program.name} is built with {program.installer}; install {INSTALL[program.installer]}")
    for abandoned in home.parent.glob(home.name + ".*.part"):  # left by a killed build: we hold the lock
        shutil.rmtree(abandoned, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=home.name + ".", suffix=".part", dir=home.parent))
    progress(f"building {program.name} {program.version} (once a machine)")
    try:
        if program.installer == "go":
            command, more = [tool, "install", f"{program.source}@{program.version}"], {"GOBIN": str(fresh)}
        else:
            command = [tool, "install", "--no-audit", "--no-fund", "--prefix", str(fresh)]
            command, more = [*command, f"{program.source}@{program.version}"], {}
        done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not (fresh / program.file).exists():
            lines = (done.stderr + done.stdout).strip().splitlines()
            raise Unavailable(
                f"{program.name} could not be built",
                command=" ".join(command[1:]),
                exit_code=done.returncode,
                said=lines[-1] if lines else "",
            )
        fresh.rename(home)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
