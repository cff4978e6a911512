"""`docs/tables.md`, typed from top to bottom; the code that it prints for pasting is executed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.docs.blocks import executed
from tests.docs.page_shell import PageShell, types
from tests.scenarios.house import House, eventually, opened_house
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.extended, pytest.mark.timeout(600)]

BLOCKS = executed("docs/tables.md", __file__)
RECORDS = 2_000


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path) -> Iterator[House]:
    with opened_house(kafka, tmp_path / "house", "page-tables") as opened:
        with opened.config.open("a") as settings:
            settings.write(f'[table]\nfolder = "{tmp_path / "lake"}"\ncommit_interval = "0s"\n')
        topic = opened.create("t")
        opened.append(topic, RECORDS)
        opened.run("agent", "--once")
        eventually(lambda: len(opened.logs(topic)) == 1)
        yield opened


@pytest.fixture
def shell(house: House, tmp_path: Path) -> Iterator[PageShell]:
    meant = {
        "kafka.orders": "kafka.page_tables_t",
        "orders": "page-tables-t",
        "/var/lib/tierstate-tables": str(tmp_path / "lake"),
    }
    variables = {"TIERSTATE_CONFIG": str(house.config)}
    with closing(PageShell(tmp_path / "shell", meant, variables, forks=True)) as opened:
        yield opened


def test_every_block_in_the_order_of_the_page(house: House, shell: PageShell) -> None:
    names: dict[str, Any] = {}
    for block in BLOCKS:
        if block.kind == "sql":
            sql = block.code
        elif block.kind == "python":
            exec(shell.here(block.code), names)
        elif "tierstate table follow   " in block.code:
            create, follow = block.commands()
            assert shell.type(create).returncode == 0
            follows(house, shell.here(follow))
        else:
            types(shell, block)
            if block.kind == "console":
                names = pasted(shell.type("tierstate table show kafka.orders --catalog").stdout)
    copied = names["table"].scan().count()
    assert 0 < copied < RECORDS, "the active segment is not copied"
    assert duckdb.read_parquet(names["files"]).count("*").fetchall() == [(copied,)]
    orders = duckdb.read_parquet(names["files"])
    assert orders is not None
    rows = duckdb.sql(sql)
    assert rows is not None
    assert len(rows.fetchall()) == copied, "no value is JSON of that schema"


def follows(house: House, command: str) -> None:
    """Run a service until it has brought the table to its topic's end."""
    service = house.start(*shlex.split(command, comments=True)[1:])
    eventually(lambda: [table["state"] for table in house.json("table", "list")] == ["current"])
    assert service.stop() == 0


def pasted(printed: str) -> dict[str, Any]:
    """Run the lines for pyiceberg and for DuckDB, and return the names that they define."""
    texts = re.split(r"^# .+\n", printed, flags=re.MULTILINE)
    names: dict[str, Any] = {}
    for text in texts[1:3]:
        exec(text, names)
    return names
