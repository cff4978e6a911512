"""The dotted keys that exist, read off the setting classes: for suggestions, for secrets, for the documentation."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from .section import Section
from .setting_types import READS_DURATION, is_secret_catalog_property, is_secret_property
from .settings import FREE, Settings, TopicOverrides

TOPIC_TABLE = ("tiering", "topics")
ENVIRONMENT = "TIERSTATE_"


def fields(
    section: type[Section] = Settings, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every scalar or list setting with its path, in the order of the file. ``kafka``, ``catalog`` and
    ``tiering.topics`` are tables whose keys are free; they come once, as themselves."""
    for attribute, field in section.model_fields.items():
        here = (*path, field.alias or attribute)
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from fields(kind, here)
        else:
            yield here, field


FIELDS = dict(fields())
SECTIONS = {path[:length] for path in FIELDS for length in range(len(path))}


def is_secret(path: Sequence[str]) -> bool:
    """Whether the value at this path is a secret by its name."""
    if path[0] in FREE:
        secret = is_secret_property if path[0] == "kafka" else is_secret_catalog_property
        return secret(".".join(path[1:]))
    field = FIELDS.get(tuple(path))
    return field is not None and _mentions(field.annotation, SecretStr)


def is_path(path: Sequence[str]) -> bool:
    """Whether the setting at this path names files or folders."""
    field = FIELDS.get(tuple(path))
    return field is not None and _mentions(field.annotation, Path)


def is_duration(path: Sequence[str]) -> bool:
    """Whether the setting at this path is a duration."""
    field = TopicOverrides.model_fields.get(path[-1]) if path[:2] == TOPIC_TABLE else FIELDS.get(tuple(path))
    return field is not None and (READS_DURATION in field.metadata or _mentions(field.annotation, READS_DURATION))


def _mentions(annotation: object, kind: object) -> bool:
    """Whether a type is ``kind``, or made of it: ``Secret | None``, ``tuple[Path, ...]``."""
    return annotation is kind or any(_mentions(part, kind) for part in get_args(annotation))


def environment_name(path: Sequence[str]) -> str:
    """``("store", "url")`` is ``TIERSTATE_STORE__URL``; of the keys of `FREE`, ``.`` becomes ``_``."""
    return ENVIRONMENT + "__".join(part.replace(".", "_") for part in path).upper()


def path_of_environment(name: str) -> tuple[str, ...] | None:
    """The path that a variable sets, known or not; None when it is no setting (``TIERSTATE_CONFIG``)."""
    if not name.startswith(ENVIRONMENT) or ("__" not in name and name != environment_name(("state_dir",))):
        return None
    section, separator, rest = name.removeprefix(ENVIRONMENT).lower().partition("__")
    if section in FREE:
        return (section, rest.replace("_", "."))
    return (section, *rest.split("__")) if separator else (section,)


def path_of_dotted(key: str) -> tuple[str, ...]:
    """``store.url``; everything after a section of `FREE` is one property."""
    section, separator, rest = key.partition(".")
    if not separator:
        return (section,)
    return (section, rest) if section in FREE else (section, *rest.split("."))


def unknown(path: Sequence[str]) -> str:
    """What to say about a key that does not exist: the nearest one, or all that stand beside where it was written."""
    section, name = tuple(path[:-1]), path[-1]
    if section[:2] == TOPIC_TABLE:
        beside = list(TopicOverrides.model_fields)
    else:
        beside = sorted({known[len(section)] for known in FIELDS if known[: len(section)] == section})
    near = difflib.get_close_matches(name, beside, n=1) or _elsewhere(path)
    if near:
        return f"unknown; did you mean {'.'.join((*section, near[0])) if near[0] in beside else near[0]}?"
    return f"unknown; {'here' if section else 'at the top'} there are {', '.join(beside)}"


def _elsewhere(path: Sequence[str]) -> list[str]:
    dotted = [".".join(known) for known in FIELDS]
    near = difflib.get_close_matches(".".join(path), dotted, n=1, cutoff=0.75)
    return near or [key for key in dotted if key.rpartition(".")[2] == path[-1]][:1]
