"""The release that this code is, as facts of later releases name it."""

from __future__ import annotations

RELEASE = "0.1.0"
"""As in ``pyproject.toml``; a test compares them. A constant, because facts are read where no package is installed."""


def is_since(release: str, first: str) -> bool:
    """Whether ``release`` is ``first`` or later. Raises ValueError for a text that is no release."""
    return _numbers(release) >= _numbers(first)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
