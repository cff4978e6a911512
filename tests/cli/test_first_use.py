"""Mistakes of a first hour, by the program itself: each ends in a sentence that names the way on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_main import Tierstate, clean_environment, tierstate
from tests.tiers import few
from tierstate.cli.main import run

__all__ = ["tierstate"]
RIGHTS = "-dac_override,-dac_read_search"
NO_SUPERUSER = [] if os.getuid() else ["setpriv", f"--bounding-set={RIGHTS}", f"--inh-caps={RIGHTS}"]
"""With this prefix the modes of files hold for the superuser, too."""


@pytest.mark.parametrize("asked", few(["list", "drop kafka.orders"], ["list"]))
def test_looking_for_tables_makes_no_catalog(tierstate: Tierstate, tmp_path: Path, asked: str) -> None:
    done = tierstate("table", *asked.split(), "--set", "table.folder=tables")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no catalog of tables: `tierstate table create TOPIC` makes one" in done.stderr
    assert f"folder={tmp_path / 'tables'}\n" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["127.0.0.1:8080", "localhost", "ftp://localhost:8080", "http://", "http://h:port"])
@pytest.mark.parametrize("asked", ["topics", "consume orders:0"])
def test_an_address_that_is_no_url_of_a_gateway_is_a_mistake_of_its_option(
    given: str, asked: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*asked.split(), "--gateway", given]) == 2
    assert capfd.readouterr().err == f"tierstate: --gateway is a URL like http://HOST:PORT. given={given!r}\n"


@pytest.mark.parametrize(
    ("asked", "option", "file"),
    [
        ("sandbox up --dir locked/new", "--dir", "locked/new"),
        ("sandbox up --dir locked", "--dir", "locked/broker-1"),
        ("sandbox up --dir file/new", "--dir", "file/new/sandbox.json"),
        ("replay --out file", "--out", "file"),
        ("dump-log orders-0", "PATH", "orders-0/00000000000000000000.log"),
        ("dump-log orders-0/00000000000000000000.log", "PATH", "orders-0/00000000000000000000.log"),
    ],
)
def test_a_place_that_cannot_be_used_is_named_with_the_option_that_named_it(
    asked: str, option: str, file: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "locked").mkdir(mode=0o500)
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "00000000000000000000.log").touch(mode=0o000)
    command = [*NO_SUPERUSER, sys.executable, "-m", "tierstate.cli.main", *asked.split()]
    done = subprocess.run(command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=100)
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(
        rf"tierstate: {option}: (\S+/)?{file}: [A-Z][a-z ]+: give this user access, or name another place\n",
        done.stderr,
    )


def test_verify_offers_the_levels_it_has_and_says_what_level_4_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--help"]) == 0
    assert "0<=x<=3" in capsys.readouterr().out
    assert run(["verify", "orders", "--level", "4"]) == 2
    assert "not in this version: level 4 (compare with the local copy)" in capsys.readouterr().err
    assert run(["verify", "orders", "--level", "5"]) == 2
    assert "5 is not in the range 0<=x<=3" in capsys.readouterr().err
