"""Mistakes of a first hour, by the program itself: each ends in a sentence that names the way on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_main import Tierstate, tierstate
from tierstate.cli.main import run

__all__ = ["tierstate"]


@pytest.mark.parametrize("asked", ["list", "drop kafka.orders"])
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
