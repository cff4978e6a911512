"""The list that `tierstate config` prints: every setting, written as in the file, with its origin. Hides secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .settings import Settings

MASK = "(hidden)"


class EffectiveSetting(NamedTuple):
    """``value`` is written as in the file; ``origin`` is ``default``, a file, a variable or a flag."""

    key: str
    value: str
    origin: str


def effective(settings: Settings) -> list[EffectiveSetting]:
    """Return all settings in the order of the file. Values that are secrets, or came by reference, are masked."""
    tree = settings.model_dump(mode="json", by_alias=True)
    return [
        EffectiveSetting(key, MASK if settings.is_masked(key) else _shown(value), settings.origin(key))
        for key, value in _leaves(tree, "")
    ]


def _leaves(tree: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(f'"{item}"' for item in value) + "]"
    return str(value)
