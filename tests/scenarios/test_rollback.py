"""The last release and this one, one after the other over one bucket and one tier-state topic, there and back again.

The last release is the newest tag ``v*`` below this commit. Before the first one it is `BEFORE_THE_FIRST`, the commit
before facts could travel in envelopes. Its files are taken out of git and run by this environment's Python, so nothing
is fetched; a shallow checkout that does not have the commit skips the test by name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from tests.scenarios.house import House, eventually, opened_house
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
BEFORE_THE_FIRST = "0f68e506c49eb2a86e9b70fdba8055400191e040"
RECORDS = 2_500


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout


def last_release() -> str | None:
    """Return the commit, or None in a checkout that does not have it."""
    try:
        tags = git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-v:refname").decode().split()
        release = tags[0] if tags else BEFORE_THE_FIRST
        git("cat-file", "-e", f"{release}^{{commit}}")
    except (OSError, subprocess.CalledProcessError):
        return None
    return release


RELEASE = last_release()


class LastRelease:
    """A runner of the last release's commands with the settings of a house."""

    def __init__(self, house: House, folder: Path) -> None:
        assert RELEASE is not None
        with tarfile.open(fileobj=BytesIO(git("archive", RELEASE))) as files:
            files.extractall(folder, filter="tar")
        self._house = house
        self._environment = {**os.environ, "PYTHONPATH": str(folder / "src")}

        home = self._python("-c", "import tierstate; print(tierstate.__file__)")
        assert home.startswith(str(folder)), "another tierstate is imported"

    def run(self, *arguments: str) -> str:
        return self._python("-m", "tierstate.cli.main", *arguments, "--config", str(self._house.config))

    def _python(self, *arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, env=self._environment, cwd=self._house.folder, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path) -> Iterator[House]:
    with opened_house(kafka, tmp_path / "house", "rollback") as made:
        settings = made.config.read_text().replace('[prefix]\nheartbeat = "1s"\n', "")  # unknown to the last release
        made.config.write_text(settings + '[expire]\ngrace = "0s"\n')
        yield made


@pytest.mark.skipif(RELEASE is None, reason="the commit of the last release is not in this checkout")
def test_each_release_goes_on_with_what_the_other_wrote(house: House, tmp_path: Path) -> None:
    old = LastRelease(house, tmp_path / "release")
    topic, written = house.create("t"), 0

    def new(*arguments: str) -> str:
        alone = ("--set", "prefix.trial=0s", "--set", "prefix.heartbeat=1s") if arguments[0] == "agent" else ()
        return house.run(*arguments, *alone).stdout

    for turn, run in enumerate((old.run, new, old.run, new)):
        house.append(topic, RECORDS, first=written)
        written += RECORDS
        run("agent", "--once")
        eventually(lambda: len(house.logs(topic)) == 1)  # copied, and trimmed
        before = written - RECORDS // 2
        run("delete-records", f"{topic}:0", "--before", str(before), "--execute", "--no-wait")
        objects = house.objects()
        run("agent", "--once")
        assert not set(objects) <= set(house.objects()), f"turn {turn}: expired"
        for read in (old.run, new):
            offsets = read("consume", f"{topic}:0", "--format", "%o\\n").split()
            assert [int(each) for each in offsets] == list(range(before, written)), f"turn {turn}"
            read("verify", topic, "--level", "3")
            read("check")
