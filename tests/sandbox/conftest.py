"""Shared builders of the sandbox tests."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tierstate.sandbox.detached import process_started

WaitUntil = Callable[[Callable[[], bool]], None]


@pytest.fixture
def wait_until() -> WaitUntil:
    """Return a function that waits until something becomes true, for half a minute at most."""

    def wait(condition: Callable[[], bool]) -> None:
        for _ in range(1_500):
            if condition():
                return
            time.sleep(0.02)
        pytest.fail("it did not happen within half a minute")

    return wait


@pytest.fixture
def is_gone() -> Callable[[int], bool]:
    """Return a function that tells whether a process ended."""
    return lambda pid: process_started(pid) is None
