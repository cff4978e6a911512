"""The dotted keys of all settings, read from the setting classes: for suggestions, secrets and the documentation."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from .setting_types import READS_DURATION, SECRET_OF_CATALOG, SECRET_OF_KAFKA, Section
from .settings import FREE, NextStore, Settings, TopicOverrides

TOPIC_TABLES: Mapping[tuple[str, ...], type[Section]] = {
    ("tiering", "topics"): TopicOverrides,
    ("store", "topics"): NextStore,
}
"""The tables whose keys are names or patterns of topics, with the section of each value."""
ENVIRONMENT = "TIERSTATE_"
INSTEAD_OF = {
    "gateway.workers": "a gateway is one process; start several behind a reverse proxy (deploy/nginx.conf)",
    "gateway.connections_per_address": "the reverse proxy limits connections per address: limit_conn in "
    "deploy/nginx.conf",
}
"""What replaces a removed setting."""


def fields(
    section: type[Section] = Settings, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Yield every scalar or list setting with its path, in the order of the file. ``kafka``, ``catalog`` and
    `TOPIC_TABLES` are tables whose keys are free: each of them is yielded once, as one setting."""
    for attribute, field in section.model_fields.items():
        below = (*path, field.alias or attribute)
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from fields(kind, below)
        else:
            yield below, field


FIELDS = dict(fields())
SECTIONS = {path[:length] for path in FIELDS for length in range(len(path))}


def is_secret(path: Sequence[str]) -> bool:
    """Return whether the value at this path is a secret, by its type or by its property's name."""
    if path[0] in FREE:
        names = SECRET_OF_KAFKA if path[0] == "kafka" else SECRET_OF_CATALOG
        return names.search(".".join(path[1:])) is not None
    field = _field(path)
    return field is not None and _mentions(field.annotation, SecretStr)


def is_path(path: Sequence[str]) -> bool:
    field = _field(path)
    return field is not None and _mentions(field.annotation, Path)


def is_duration(path: Sequence[str]) -> bool:
    field = _field(path)
    return field is not None and (READS_DURATION in field.metadata or _mentions(field.annotation, READS_DURATION))


def _field(path: Sequence[str]) -> FieldInfo | None:
    table = TOPIC_TABLES.get(tuple(path[:2]))
    return table.model_fields.get(path[-1]) if table and len(path) == 4 else FIELDS.get(tuple(path))


def _mentions(annotation: object, kind: object) -> bool:
    """Return whether a type is ``kind``, or contains it: ``SecretStr | None``, ``tuple[Path, ...]``."""
    return annotation is kind or any(_mentions(part, kind) for part in get_args(annotation))


def environment_name(path: Sequence[str]) -> str:
    """Return ``TIERSTATE_STORE__URL`` for ``("store", "url")``; in keys of `FREE`, ``.`` becomes ``_``."""
    return ENVIRONMENT + "__".join(part.replace(".", "_") for part in path).upper()


def path_of_environment(name: str) -> tuple[str, ...] | None:
    """Return the setting path of a variable, also of an unknown setting. None for any other variable."""
    if not name.startswith(ENVIRONMENT) or ("__" not in name and name != environment_name(("state_dir",))):
        return None
    section, separator, rest = name.removeprefix(ENVIRONMENT).lower().partition("__")
    if section in FREE:
        return (section, rest.replace("_", "."))
    return (section, *rest.split("__")) if separator else (section,)


def path_of_dotted(key: str) -> tuple[str, ...]:
    """Return ``("store", "url")`` for ``store.url``; everything after a section of `FREE` is one property."""
    section, separator, rest = key.partition(".")
    if not separator:
        return (section,)
    return (section, rest) if section in FREE else (section, *rest.split("."))


def unknown(path: Sequence[str]) -> str:
    """Return a message about a key that does not exist: its replacement, the nearest key, or its section's keys."""
    if replacement := INSTEAD_OF.get(".".join(path)):
        return f"was removed: {replacement}"
    section, name = tuple(path[:-1]), path[-1]
    if table := TOPIC_TABLES.get(section[:2]):
        siblings = list(table.model_fields)
    else:
        siblings = sorted({field[len(section)] for field in FIELDS if field[: len(section)] == section})
    near = difflib.get_close_matches(name, siblings, n=1) or _elsewhere(path)
    if near:
        return f"unknown; did you mean {'.'.join((*section, near[0])) if near[0] in siblings else near[0]}?"
    return f"unknown; {'here' if section else 'at the top'} there are {', '.join(siblings)}"


def _elsewhere(path: Sequence[str]) -> list[str]:
    dotted = [".".join(field) for field in FIELDS]
    near = difflib.get_close_matches(".".join(path), dotted, n=1, cutoff=0.75)
    return near or [key for key in dotted if key.rpartition(".")[2] == path[-1]][:1]
