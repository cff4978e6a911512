"""The release of this code, which facts of later releases refer to."""

from __future__ import annotations

RELEASE = "0.1.0"
"""The version in ``pyproject.toml``; a test compares them. A constant works where the package is not installed, too."""


def is_since(release: str, first: str) -> bool:
    """Return whether ``release`` is ``first`` or later. Raises ValueError for a text that is not a release."""
    return _numbers(release) >= _numbers(first)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
