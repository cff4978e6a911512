"""The order of tests, and the worker that takes each, when several workers run in parallel (`make test`).

A worker takes a file, because tests of one file share what they start. It takes the whole of `tests/spark`: each worker
with a file of it would start a JVM, the Python of its executors and the tables that they all read.

The longest come first, and tests that wait for real processes before tests that only compute. Otherwise one worker is
left with a long file at the end, while the others have nothing to do.
"""

from __future__ import annotations

import zlib
from datetime import date
from importlib import import_module
from typing import Any

import pytest

TOGETHER = ("tests/spark/",)
WITH_A_BROKER = ("tests/scenarios/", "tests/consumer/", "tests/tail/", "tests/restore/", "tests/proxy/test_running")
ALONE = ("tests/scenarios/test_demo_in_small.py",)
"""The demo has a broker of its own, and is the longest of all."""
LONGEST = ("spark", "scenarios", "histories", "proxy", "consumer", "api")


def begins(item: pytest.Item) -> int:
    """Return the rank of a test by its folder; a lower rank runs earlier."""
    room = item.path.parent.name
    return LONGEST.index(room) if room in LONGEST else len(LONGEST)


def another_order_each_day(item: pytest.Item) -> tuple[int, int]:
    """Return `begins`, and within a rank an order by the day: a run that has too little time leaves others each day."""
    return begins(item), zlib.crc32(f"{date.today()} {item.location[0]}".encode())


def by_rooms(config: pytest.Config, log: Any) -> Any:
    """Return xdist's scheduler ``loadfile`` (it has no types), which treats each of these folders as one file."""
    scheduling = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    scheduling._split_scope = unit_of_the_first_run if config.option.tier == "test" else unit_of
    return scheduling


def unit_of_the_first_run(nodeid: str) -> str:
    """Return the unit of a test in `make test`, where two workers run all tests that share a broker."""
    file = nodeid.split("::", 1)[0]
    if file.startswith(WITH_A_BROKER) and file not in ALONE:
        return f"a broker {zlib.adler32(file.encode()) % 2}"
    return unit_of(nodeid)


def unit_of(nodeid: str) -> str:
    return next((room for room in TOGETHER if nodeid.startswith(room)), nodeid.split("::", 1)[0])
