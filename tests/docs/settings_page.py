"""Makes docs/settings.md from the setting classes: ``python -m tests.docs.settings_page > docs/settings.md``."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from inspect import getsource
from itertools import pairwise
from typing import Literal, get_args, get_origin

from pydantic import BaseModel

from tierstate.runtime.setting_types import Section
from tierstate.runtime.settings import FREE, Settings, TopicOverrides
from tierstate.runtime.settings_keys import FIELDS, TOPIC_TABLES, environment_name

HEAD = """# Settings

<!-- Made by `python -m tests.docs.settings_page > docs/settings.md`; a test compares them. -->

One TOML file: `--config FILE`, else `$TIERSTATE_CONFIG`, `./tierstate.toml`, `/etc/tierstate/tierstate.toml`.
Later wins: defaults, the file, the environment, `--set section.key=value`, `--bootstrap-server` and `--store`.
`tierstate config` shows every value and where it came from.

- Sizes: `4MiB`, `10MB`, `0` (B KiB MiB GiB TiB, KB MB GB TB). Durations: `15m`, `1h30m`, `250ms`, `0`
  (ms s m h d y). A duration without a unit is refused, but for `0`: `delay = 15` could be seconds, minutes or Kafka's
  ms.
- Lists in the environment and in `--set` are written as in TOML: `["a", "b"]`; one value alone needs no brackets.
- Patterns are regular expressions that match the whole name.
- Secrets are given by reference, `{ env = "NAME" }`, `{ file = "PATH" }` or `{ command = ["PROGRAM", "ARGUMENT"] }`
  (what it prints), or in the variable of the setting itself. Any other value may be a reference too. None of these is
  ever printed.
- Relative paths in the file start at the file's folder.
- `[kafka]` holds librdkafka properties, in quotes, as they are; `TIERSTATE_KAFKA__BOOTSTRAP_SERVERS` sets
  `bootstrap.servers`. `[catalog]` holds pyiceberg's in the same way ([tables](tables.md#catalogs)).
- Tables keyed by topic can be set in the file only.
- **A setting needs a restart, a secret does not.** A process reads its settings once, when it starts. It reads again,
  when they change: what `[kafka]` has by `file` (by `command`: when a login is refused) and its TLS files, the keys of
  `[store]` for S3, the files of `[gateway.tls]` and `[proxy.tls]`, `encryption.keyring`, `gateway.auth.tokens`, and the
  file of `gateway.auth.jwt.keys`: [rotation](rotation.md).
"""

NAMED = {
    "Size": "size",
    "Duration": "duration",
    "Listen": "address",
    "Reachable": "address",
    "Patterns": "patterns",
    "Names": "names",
    "Rules": "rules",
    "Folders": "paths",
    "Path": "path",
    "StoreUrl": "URL",
    "HttpUrl": "URL",
    "TopicStores": "table",
    "SecretStr": "secret",
    "int": "number",
    "bool": "true, false",
}
"""The types of `tierstate.runtime.setting_types` and of Python, for people. All others are texts."""


def settings_markdown() -> str:
    """Return the whole page as Markdown."""
    return "\n".join([HEAD, *_top(), *_sections(Settings, ()), ""])


def _top() -> Iterator[str]:
    yield from _table([(path[0], path) for path in FIELDS if len(path) == 1 and path[0] not in FREE], Settings)


def _sections(section: type[Section], path: tuple[str, ...]) -> Iterator[str]:
    for attribute, field in section.model_fields.items():
        path_below = (*path, field.alias or attribute)
        kind = field.annotation
        if not (isinstance(kind, type) and issubclass(kind, Section)):
            continue
        yield f"\n## `[{'.'.join(path_below)}]`\n"
        yield (kind.__doc__ or "").strip().partition("\n")[0] + "\n"
        rows = [(below[-1], below) for below in FIELDS if below[:-1] == path_below and below != ("tiering", "topics")]
        yield from _table(rows, kind)
        if path_below == ("tiering",):
            yield from _overrides()
        yield from _sections(kind, path_below)


def _overrides() -> Iterator[str]:
    yield '\n## `[tiering.topics."NAME"]`\n'
    yield (TopicOverrides.__doc__ or "").strip() + "\n"
    yield from _table([(name, None) for name in TopicOverrides.model_fields], TopicOverrides)


def _table(rows: Sequence[tuple[str, tuple[str, ...] | None]], model: type[BaseModel]) -> Iterator[str]:
    described = descriptions(model)
    defaults = model().model_dump(mode="json", by_alias=True)
    yield "| key | type | default | variable | |"
    yield "|---|---|---|---|---|"
    for name, path in rows:
        variable = f"`{environment_name(path)}`" if path and path not in TOPIC_TABLES else ""
        cells = (f"`{name}`", _type(model, name), _default(defaults[name]), variable, described[name])
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each setting of a section, by the setting's name."""
    (section,) = ast.parse(getsource(model)).body
    assert isinstance(section, ast.ClassDef)
    texts = dict[str, str]()
    for setting, below in pairwise(section.body):
        if isinstance(setting, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            name = ast.unparse(setting.target)
            texts[model.model_fields[name].alias or name] = " ".join(str(below.value.value).split())
    return texts


def _type(model: type[BaseModel], name: str) -> str:
    """Return the type of a setting for people, from its annotation as the class has it."""
    attribute = next(key for key, field in model.model_fields.items() if name in (key, field.alias))
    kind = model.model_fields[attribute].annotation
    for each in (kind, *get_args(kind)):
        if get_origin(each) is Literal:
            return ", ".join(get_args(each))
    return NAMED.get(model.__annotations__[attribute].removesuffix(" | None"), "text")


def _default(value: object) -> str:
    if value in (None, "", [], {}):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    sys.stdout.write(settings_markdown())
