"""Settings from a TOML file, the environment and flags; later ones win. All errors are reported together.

Order: defaults, the file, ``TIERSTATE_SECTION__KEY``, ``--set section.key=value``, ``--bootstrap-server``, ``--store``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from ..state.errors import InvalidSettings
from .live_secret import LiveSecret, Reference
from .settings import FREE, Settings
from .settings_keys import TOPIC_TABLES, is_duration, is_path, is_secret, path_of_dotted, path_of_environment, unknown

CONFIG_VARIABLE = "TIERSTATE_CONFIG"
SEARCHED = (Path("tierstate.toml"), Path("/etc/tierstate/tierstate.toml"))

_CREDENTIALS = re.compile(r"[A-Za-z0-9+.-]+://[^/@]*:[^/@]*@")
"""An address like ``postgresql://user:password@host``."""

REFERENCES = '{ env = "NAME" }, { file = "PATH" } or { command = ["PROGRAM", "ARGUMENT"] }'

SettingPath = tuple[str, ...]


class Given(NamedTuple):
    """One value of a setting, with its origin."""

    value: object
    origin: str
    folder: Path
    """The folder that relative paths and references start from."""
    open: bool
    """True if others can read the place of the value: a file, a command line. No secret may be there."""


def load_settings(
    config: Path | None,
    overrides: Sequence[str],
    environ: Mapping[str, str],
    bootstrap_server: str | None = None,
    store: str | None = None,
    searched: Sequence[Path] = SEARCHED,
) -> Settings:
    """Return the effective settings. ``overrides``: ``section.key=value``. Raises InvalidSettings with all problems."""
    problems: list[str] = []
    values: dict[SettingPath, Given] = {}
    file = _find(config, environ, searched)
    if file is not None:
        values |= _from_file(file, problems)
    values |= _from_environment(environ, problems)
    values |= _from_overrides(overrides, problems)
    for path, value, flag in (
        (("kafka", "bootstrap.servers"), bootstrap_server, "--bootstrap-server"),
        (("store", "url"), store, "--store"),
    ):
        if value is not None:
            values[path] = Given(value, flag, Path(), True)
    return _settle(values, environ, problems)


def settings_from(values: Mapping[str, object], origin: Callable[[str], str] = str) -> Settings:
    """Return settings from ``values`` alone, by dotted key (``store.path_style``, ``kafka.bootstrap.servers``). No file
    and no environment is read. ``origin`` returns the source of a key. Raises InvalidSettings with all problems.
    """
    planted = {path_of_dotted(key): Given(value, origin(key), Path(), False) for key, value in values.items()}
    return _settle(planted, {}, [])


def _settle(values: Mapping[SettingPath, Given], environ: Mapping[str, str], problems: list[str]) -> Settings:
    tree: dict[str, Any] = {}
    masked: set[str] = set()
    live: dict[str, LiveSecret] = {}
    for path, one in values.items():
        reference = _reference(one)
        if reference or is_secret(path):
            masked.add(_dotted(path))
        try:
            value = _resolved(path, one, reference, environ)
            _plant(tree, path, value)
            if reference is not None and reference.kind != "env":
                live[_dotted(path)] = LiveSecret(reference, str(value))
        except ValueError as error:
            problems.append(f"{_dotted(path)}: {error} ({one.origin})")
    origins = {_dotted(path): one.origin for path, one in values.items()}
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        problems += [_problem(details, origins, masked) for details in error.errors()]
    if problems:
        raise InvalidSettings(problems)
    return settings.with_origins(origins, masked, live)


def _find(config: Path | None, environ: Mapping[str, str], searched: Sequence[Path]) -> Path | None:
    if config is None and environ.get(CONFIG_VARIABLE):
        config = Path(environ[CONFIG_VARIABLE])
    return config or next((path for path in searched if path.is_file()), None)


def _from_file(file: Path, problems: list[str]) -> dict[SettingPath, Given]:
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"{file}: cannot be read, {error.strerror}")
        return {}
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        problems.append(f"{file}: not TOML, {error}")
        return {}
    folder = file.absolute().parent
    return {path: Given(value, str(file), folder, True) for path, value in _leaves(tables, ())}


def _leaves(table: Mapping[str, object], path: SettingPath) -> list[tuple[SettingPath, object]]:
    values: list[tuple[SettingPath, object]] = []
    for name, value in table.items():
        below = (*path, name)
        if path and path[0] in FREE:  # bootstrap.servers without quotes is a table to TOML
            below = (path[0], ".".join(below[1:]))
        if isinstance(value, dict) and value and not _is_reference(value):
            values += _leaves(value, below)
        else:
            values.append((below, value))
    return values


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> dict[SettingPath, Given]:
    values: dict[SettingPath, Given] = {}
    for name, text in sorted(environ.items()):
        path = path_of_environment(name)
        if path is None:
            continue
        if path[:2] in TOPIC_TABLES:
            problems.append(f"{name}: tables keyed by topic are settings of the file only")
        else:
            values[path] = Given(typed(text), f"environment {name}", Path(), False)
    return values


def _from_overrides(overrides: Sequence[str], problems: list[str]) -> dict[SettingPath, Given]:
    values: dict[SettingPath, Given] = {}
    for override in overrides:
        key, separator, text = override.partition("=")
        path = path_of_dotted(key.strip())
        if not separator or not all(path):
            problems.append("--set: write section.key=value")
        elif path[:2] in TOPIC_TABLES:
            problems.append(f"{key.strip()}: tables keyed by topic are settings of the file only (--set)")
        else:
            values[path] = Given(typed(text.strip()), "--set", Path(), True)
    return values


def typed(text: str) -> object:
    """Parse lists and references as in the file. Return any other text unchanged: the setting's class parses it."""
    if text.startswith(("[", "{")):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text
    return text


def _is_reference(value: object) -> bool:
    if not isinstance(value, dict) or len(value) != 1:
        return False
    kind, words = next(iter(value.items()))
    if kind == "command":
        return isinstance(words, list) and bool(words) and all(isinstance(each, str) for each in words)
    return kind in ("env", "file") and isinstance(words, str)


def _reference(one: Given) -> Reference | None:
    if not isinstance(one.value, dict) or not _is_reference(one.value):
        return None
    kind, words = next(iter(one.value.items()))
    return Reference(kind, tuple(words) if kind == "command" else (words,), one.folder)


def _resolved(path: SettingPath, one: Given, reference: Reference | None, environ: Mapping[str, str]) -> object:
    """Return the value that its class parses. Raises ValueError for a reference without a value or an open secret."""
    value = one.value
    if reference is not None:
        value = reference.read(environ)
    elif is_secret(path) and one.open:
        raise ValueError(f"a secret is given by reference only: {REFERENCES}")
    if path[0] in FREE and len(path) > 1:
        if path[0] == "kafka" and "_" in path[1]:
            raise ValueError(f"librdkafka's names have dots: did you mean {path[1].replace('_', '.')}?")
        text = _text(value)
        if one.open and reference is None and _CREDENTIALS.match(text):
            raise ValueError(f"an address with a password is given by reference: {REFERENCES}")
        return text
    if is_duration(path) and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # so a duration without a unit is refused here, too
    if is_path(path) and isinstance(value, str):
        return str(one.folder / value)
    if is_path(path) and isinstance(value, list):
        return [str(one.folder / item) if isinstance(item, str) else item for item in value]
    return value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError("a property is text, a number, true or false")


def _plant(tree: dict[str, Any], path: SettingPath, value: object) -> None:
    for name in path[:-1]:
        below = tree.setdefault(name, {})
        if not isinstance(below, dict):  # `store = "…"` in the file: one problem, reported for the file, is enough
            return
        tree = below
    if not (value == {} and isinstance(tree.get(path[-1]), dict)):
        tree[path[-1]] = value


def _problem(details: Any, origins: Mapping[str, str], masked: set[str]) -> str:
    """Return one line for a pydantic error. The value is in the line unless it is a secret or came by reference."""
    location = tuple(str(part) for part in details["loc"])
    message = str(details["msg"]).removeprefix("Value error, ")
    if not location:  # two sections contradict each other
        return message
    keys = [_dotted(location[:length]) for length in range(len(location), 0, -1)]
    origin = next((origins[key] for key in keys if key in origins), "")
    if not origin:  # an unknown section: its origin is that of its first key
        origin = next((where for key, where in origins.items() if key.startswith(keys[0] + ".")), "default")
    if details["type"] == "extra_forbidden":
        return f"{keys[0]}: {unknown(location)} ({origin})"
    if any(key in masked for key in keys):
        return f"{keys[0]}: the value behind this reference is not valid ({origin})"
    if details["type"] != "value_error" and isinstance(details["input"], (str, int, float, bool)):
        message = f"{message[:1].lower()}{message[1:]}, not {details['input']!r}"
    return f"{keys[0]}: {message} ({origin})"


def _dotted(path: Sequence[str]) -> str:
    return ".".join(path)
