"""Older releases of PySpark, each in a folder of its own: fetched by pip once a machine, offline afterwards.

<cache>/tierstate/pyspark-4.2.1.lock    held while a process fetches it
<cache>/tierstate/pyspark-4.2.1/        for ``PYTHONPATH``; appears whole, by one rename
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tierstate.sandbox.artifacts import cache_folder, only_one
from tierstate.state.errors import Unavailable

SUMS = {
    "4.2.1": "d79b7c8ee41e66a9202fe6f600ca90b931ca571ae9dbdf31c58d2672e5102da0",
    "4.1.4": "bcbd5e18690cf79d438e97210ad06fb8d451a251bb77becc2b0418868d2acd73",
}
"""SHA-256 of the files that pip fetches, 450 MB each."""


def older_pyspark(release: str) -> Path:
    """Return its folder. Skips the test on a machine that cannot fetch it; with TIERSTATE_CI=1 that is a failure."""
    home = cache_folder() / f"pyspark-{release}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with only_one(home.with_name(home.name + ".lock")):
        if not home.exists():
            try:
                _bring(release, home)
            except Unavailable as error:
                if os.environ.get("TIERSTATE_CI") == "1":
                    raise
                pytest.skip(str(error))
    return home


def _bring(release: str, home: Path) -> None:
    for abandoned in home.parent.glob(home.name + ".*.part"):  # left by a killed run: we hold the lock
        shutil.rmtree(abandoned, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=home.name + ".", suffix=".part", dir=home.parent))
    try:
        pins, made = fresh / "wanted", fresh / "made"
        pins.write_text(f"pyspark=={release} --hash=sha256:{SUMS[release]}\n")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
        how = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--require-hashes", "--requirement", str(pins)]
        done = subprocess.run([*pip, *how, "--target", str(made)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable("this PySpark cannot be fetched", release=release, said=done.stderr.strip()[-500:])
        made.rename(home)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
