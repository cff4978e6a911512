"""`--value-format` and similar flags become columns, and a wrong flag is refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tierstate.cli.typed_flags import TypedFlags, TypedPart, latest_schema
from tierstate.lake.columns import Columns
from tierstate.runtime.settings import Settings
from tierstate.state.errors import InvalidRequest
from tierstate.values.form import Form

NAMES = ("key", "value", "headers")
LATEST = Form("avro", '"long"', registered=True)


def columns(
    known: Columns | None = None, names: tuple[str, ...] = NAMES, *, registered: bool = False, **said: Any
) -> Columns:
    """``said``: key_format, key_schema, value_format, value_schema."""
    key, value = (
        TypedPart(name, said.get(f"{name}_format"), said.get(f"{name}_schema"), registered) for name in ("key", "value")
    )
    return TypedFlags(key, value, "map").columns(names, "orders", latest, known)


def latest(subject: str) -> Form:
    assert subject in ("orders-key", "orders-value")
    return LATEST


def test_a_schema_is_given_as_text_or_as_a_file(tmp_path: Path) -> None:
    file = tmp_path / "orders.ddl"
    file.write_text("id bigint\n")
    expected = Columns(NAMES, Form("string"), Form("json", "id bigint"), "map")
    for schema in ("id bigint", str(file)):
        assert columns(key_format="string", value_format="json", value_schema=schema) == expected


def test_avro_is_bare_with_a_schema_and_registered_without_one_or_by_the_flag() -> None:
    assert columns(value_format="avro", value_schema='"long"').value == Form("avro", '"long"')
    assert columns(value_format="avro", value_schema='"int"', registered=True).value == Form("avro", '"int"', True)
    assert columns(value_format="avro", key_format="avro") == Columns(NAMES, LATEST, LATEST, "map")


def test_a_column_keeps_its_schema_though_the_subject_has_a_newer_one() -> None:
    earlier = Columns(NAMES, None, Form("avro", '"int"', registered=True))
    assert columns(earlier, value_format="avro").value == earlier.value
    assert columns(Columns(NAMES), value_format="avro").value == LATEST


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"value_schema": "id bigint"}, "--value-schema needs --value-format"),
        ({"key_format": "json"}, "json needs a schema"),
        ({"key_format": "string", "key_schema": "string"}, "a string has no schema"),
        ({"value_format": "json", "value_schema": "id bigint oops"}, "is no schema"),
        ({"value_format": "json", "value_schema": "nowhere/orders.ddl"}, "is no schema"),
        ({"value_format": "avro", "value_schema": "{"}, "schema"),
        ({"value_format": "json", "value_schema": "id bigint", "registered": True}, "--registered is for"),
        ({"value_format": "string", "names": ("key", "headers")}, "not among those that are written"),
    ],
)
def test_flags_that_name_no_readable_form_are_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        columns(**said)


def test_without_a_registry_a_schema_must_be_given() -> None:
    with pytest.raises(InvalidRequest, match=r"registry\.url"):
        latest_schema(Settings())("orders-value")
