"""``--value-format`` and similar flags of `export` and `table create`. They give keys and values typed columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..state.errors import InvalidRequest
from .flags import options

if TYPE_CHECKING:
    from ..lake.columns import Columns, Headers
    from ..runtime.settings import Settings
    from ..values.form import Form

AVRO = "avro"
FORMATS = ["json", AVRO, "string"]
Latest = Callable[[str], "Form"]
"""A function that returns the form of a subject's latest schema. It raises InvalidRequest if no registry is set."""


@dataclass(frozen=True, slots=True)
class TypedPart:
    """The format of keys, or of values: None for bytes. ``avro`` without a ``schema`` uses the registry's."""

    name: str
    format: str | None
    schema: str | None
    registered: bool
    subject: str | None = None
    """Of the registry's schema; None is that of the topic."""

    @property
    def of_registry(self) -> bool:
        """True if the schema is the latest of the subject in the registry."""
        return self.format == AVRO and self.schema is None

    def form(self, topic: str, latest: Latest, old_form: Form | None) -> Form | None:
        """Return the form, or None for bytes. Raises InvalidRequest for a schema without a format.

        ``old_form`` is the form that the place or table already has. It is used again if both come from the registry.
        """
        from ..values.form import Form

        if self.format is None:
            if self.schema is not None:
                raise InvalidRequest(f"--{self.name}-schema needs --{self.name}-format", formats=", ".join(FORMATS))
            return None
        if self.of_registry:
            if old_form is not None and old_form.registered:
                return old_form
            return latest(self.subject or f"{topic}-{self.name}")
        schema = "" if self.schema is None else schema_text(self.schema)
        return Form(self.format, schema, registered=self.registered and self.format == AVRO)


@dataclass(frozen=True, slots=True)
class TypedFlags:
    key: TypedPart
    value: TypedPart
    headers: Headers

    @property
    def of_registry(self) -> bool:
        return self.key.of_registry or self.value.of_registry

    def of_subject(self, subject: str | None) -> TypedFlags:
        """Return the flags with this subject for values. Raises InvalidRequest if their schema is of no registry."""
        if subject and not self.value.of_registry:
            raise InvalidRequest("--subject needs --value-format avro, without --value-schema", subject=subject)
        return replace(self, value=replace(self.value, subject=subject))

    def columns(
        self,
        names: Sequence[str],
        topic: str,
        latest: Latest,
        old_columns: Columns | None = None,
        prefix: str | None = None,
        envelope: str | None = None,
    ) -> Columns:
        """Return the columns, flat with ``prefix``. Raises InvalidRequest for a bad schema or flag, or as `latest`."""
        from ..lake.columns import Columns

        if self.key.registered and AVRO not in (self.key.format, self.value.format):
            raise InvalidRequest("--registered is for --value-format avro or --key-format avro")
        key = self.key.form(topic, latest, None if old_columns is None else old_columns.key)
        value = self.value.form(topic, latest, None if old_columns is None else old_columns.value)
        if envelope and value is not None:
            value = enveloped(value)
        columns = Columns(tuple(names), key, value, self.headers, prefix, envelope)
        columns.schema()
        return columns


def enveloped(form: Form) -> Form:
    """Return the form of envelopes whose rows have this JSON form. Any other form describes envelopes already."""
    from ..lake.envelope import envelope_ddl

    return replace(form, schema=envelope_ddl(form.schema)) if form.format == "json" else form


def latest_schema(settings: Settings) -> Latest:
    """Return a function that reads latest schemas from the registry of the settings."""

    def latest(subject: str) -> Form:
        from ..values.avro_values import latest_form
        from ..values.schema_registry import registry_access

        access = registry_access(settings.registry)
        if access is None:
            raise InvalidRequest("avro needs a schema (--value-schema, --key-schema) or a registry: registry.url")
        return latest_form(access, subject)

    return latest


def _typed(values: dict[str, Any]) -> None:
    registered = values.pop("registered")
    key, value = (
        TypedPart(name, values.pop(f"{name}_format"), values.pop(f"{name}_schema"), registered)
        for name in ("key", "value")
    )
    values["typed"] = TypedFlags(key, value, values.pop("headers"))


typed_options = options(
    click.option("--value-format", type=click.Choice(FORMATS), help="Of values: a typed column, not bytes."),
    click.option(
        "--value-schema",
        metavar="FILE|TEXT",
        help="json: id bigint, tags array<string>; avro: a schema as JSON. Without it the registry's latest.",
    ),
    click.option("--key-format", type=click.Choice(FORMATS), help="Of keys, likewise."),
    click.option("--key-schema", metavar="FILE|TEXT", help="Of keys, likewise."),
    click.option("--registered", is_flag=True, help="Avro begins with a schema's id; always so without a schema here."),
    click.option(
        "--headers",
        type=click.Choice(["list", "map"]),
        default="list",
        show_default=True,
        help="A list of (key, value), or a map from key to its values.",
    ),
    given=_typed,
)
"""Adds the options. The command function gets them as ``typed``, a `TypedFlags`."""


def schema_text(schema: str) -> str:
    """Return the text of the file ``schema`` if there is one, else ``schema`` itself."""
    try:
        path = Path(schema)
        return path.read_text().strip() if path.is_file() else schema
    except OSError:  # a text that is too long for a file name is a schema
        return schema
