"""Prometheus' own programs: those of the machine, or those of Debian's packages, unpacked once per user.

    <cache>/tierstate/prometheus/usr/bin/promtool

Nothing is installed and no service is started. Debian's package manager verifies what it downloads. Debian's
Alertmanager runs only where it is installed, so that program is built like the programs of stores.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.servers.needs import needs
from tests.servers.store_programs import StoreProgram, store_program
from tierstate.sandbox.artifacts import cache_folder, only_one

PACKAGES = ("prometheus", "prometheus-blackbox-exporter")
ALERTMANAGER = StoreProgram(
    "alertmanager", "go", "github.com/prometheus/alertmanager/cmd/alertmanager", "v0.27.0", "alertmanager"
)


def program(name: str) -> Path:
    """Return the path of this program. Skip the test if it is not available, or fail the test with TIERSTATE_CI=1."""
    if path := shutil.which(name):
        return Path(path)
    home = cache_folder() / "prometheus"
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with only_one(home.with_name(home.name + ".lock")):
            if not home.exists() and (why := _unpack(home)):
                pytest.fail(why) if os.environ.get("TIERSTATE_CI") == "1" else pytest.skip(why)
    return home / "usr" / "bin" / name


def alertmanager_program() -> Path:
    """Return the path of Alertmanager, which is built once per machine. Skip or fail the test as `program` does."""
    needs(ALERTMANAGER)
    return store_program(ALERTMANAGER)


def _unpack(home: Path) -> str:
    """Unpack the packages into ``home``, which appears whole. Return why that is impossible, or an empty string."""
    if shutil.which("apt-get") is None:
        return f"install {', '.join(PACKAGES)}: this machine has no apt-get to fetch them"
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        fetched = subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, capture_output=True, text=True)
        if fetched.returncode:
            return f"apt-get download {' '.join(PACKAGES)} failed: {fetched.stderr.strip()[-300:]}"
        root = Path(folder) / "root"
        for package in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
        root.rename(home)
    return ""
