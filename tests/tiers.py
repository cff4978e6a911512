"""The tests that each make target runs.

    make test       every test without a marker, and the ``essential`` ones: each promise of the README once, in minutes
    make test-rest  the ``extended`` tests, which CI runs too
    make alerts     the ``alerts`` tests, which make alerts fire on real processes
    make nightly    the ``slow`` tests, and the property tests with new seeds
    make test-all   all of them

A test that starts a real broker, Spark or Chromium is extended unless it is marked ``essential``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

_CORE = "not slow and not containers and not alerts and (essential or not extended)"
TIERS = {
    "test": _CORE,
    "rest": f"not slow and not containers and not alerts and not ({_CORE})",
    "nightly": "(slow or drawn) and not containers and not alerts",
    "alerts": "alerts",
    "all": "not containers",
}
"""The marker expression of each make target."""
EXPLORING = "exploring"
"""The hypothesis profile of `make nightly`. In all other runs, examples are the same in every run."""

_STORE_SERVERS = {"versitygw_endpoint", "gcs_endpoint", "azure_endpoint", "toxiproxy_server"}
"""Fixtures of object stores that Go or npm installs at their first use."""
_WHOLE_FILE = re.compile(r"^pytestmark = .*\bmark\.(kafka|spark|chromium|extended|slow)\b", re.MULTILINE)


def mark_tier(item: pytest.Item) -> None:
    """Mark a test as ``extended`` where its other markers say so, and as ``drawn`` where hypothesis draws for it."""
    markers = {marker.name for marker in item.iter_markers()}
    if markers & {"kafka", "spark", "chromium"} and not markers & {"essential", "slow"}:
        item.add_marker(pytest.mark.extended)
    if _STORE_SERVERS & set(getattr(item, "fixturenames", ())) and "slow" not in markers:
        item.add_marker(pytest.mark.extended)
    if "chromium" in markers:
        from tests.api.browser import CHROMIUM  # not before pytest rewrites the asserts of `tests.api`

        item.add_marker(pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"))
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker(pytest.mark.drawn)


def draw_fewer(function: Any) -> None:
    """Let hypothesis draw a quarter of a test's examples, at least five. `make nightly` draws all of them."""
    drawn: settings = function._hypothesis_internal_use_settings  # as hypothesis's own plugin changes it
    count = max(min(drawn.max_examples, 5), drawn.max_examples // 4)
    function._hypothesis_internal_use_settings = settings(drawn, max_examples=count)


def few(values: Iterable[Any], chosen: Iterable[Any]) -> list[Any]:
    """Return the parameters of a test: those that are ``chosen`` run in `make test`, the others in CI and at night."""
    kept = list(chosen)
    return [value if value in kept else pytest.param(value, marks=pytest.mark.extended) for value in values]


def has_nothing_essential(path: Path) -> bool:
    """Return whether a file's own marker leaves all of its tests to other targets than `make test`."""
    if not path.name.startswith("test_") or path.suffix != ".py":
        return False
    text = path.read_text()
    return _WHOLE_FILE.search(text) is not None and "mark.essential" not in text


def part_of(file: str, part: str) -> bool:
    """Return whether a file belongs to one part of several, such as ``1/2``."""
    number, _, count = part.partition("/")
    return zlib.crc32(file.encode()) % int(count) == int(number) - 1
