"""A long table of cases: `make test` takes one of every so many, `make test-all` takes all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """Return values for `pytest.mark.parametrize`: the first of each ``every`` as they are, the others slow."""
    return [case if at % every == 0 else pytest.param(case, marks=pytest.mark.slow) for at, case in enumerate(cases)]
