"""Which worker takes which tests, and in which order, when several run side by side (`make test`).

A worker takes a file, for the tests of one file share what they start. It takes the whole of `tests/spark`: each worker
with a file of it would start a JVM, the Python of its executors and the tables that they all read.

The longest come first, and what waits for real processes before what only computes: no worker is left with one of them
in the end, while the others have nothing to do.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

TOGETHER = ("tests/spark/",)
LONGEST = ("spark", "scenarios", "histories", "proxy", "consumer", "api")


def begins(item: pytest.Item) -> int:
    """By the room; lower is earlier."""
    room = item.path.parent.name
    return LONGEST.index(room) if room in LONGEST else len(LONGEST)


def by_rooms(config: pytest.Config, log: Any) -> Any:
    """xdist's ``loadfile`` (it has no types), and these rooms as if each of them were one file."""
    scheduling = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    scheduling._split_scope = unit_of
    return scheduling


def unit_of(nodeid: str) -> str:
    return next((room for room in TOGETHER if nodeid.startswith(room)), nodeid.split("::", 1)[0])
