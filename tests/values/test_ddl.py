"""``value.schema``: Spark's DDL, read without a JVM as Spark reads it; what cannot be read here is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tierstate.state.errors import InvalidRequest
from tierstate.values.ddl import struct_of


def test_the_largest_decimal_has_38_digits() -> None:
    assert struct_of("a decimal(38,38)", "the schema") == pa.struct([("a", pa.decimal128(38, 38))])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id", "a name is due"),
        ("id bigint,", "a name is due"),
        ("id bigint name string", "the end is due"),
        ("tags array<string", "'>' is due"),
        ("tags array", "'<' is due"),
        ("id bigint; name string", "is no schema"),
        ("id uuid", "no type that can be read here. type=uuid"),
        ("at interval", "no type that can be read here. type=interval types=.*timestamp_ntz, binary, decimal"),
        ("m map<int,string>", "the keys of a map are strings"),
        ("id bigint NOT NULL", "NOT NULL is not kept. field=id"),
        ("id bigint, ID int", "a field is named twice. field=ID"),
        ("n struct<a:int,a:int>", "a field is named twice. field=a"),
        ("d decimal(39,2)", r"decimal\(precision, scale\) is due"),
        ("d decimal(3,4)", "a scale that is not above the precision is due"),
        ("id bigint, _corrupt_record string", "field=_corrupt_record"),
        ("", "a name is due"),
    ],
)
def test_a_text_that_is_no_schema_of_ours_is_refused_and_named(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=r"option value\.schema") as raised:
        struct_of(text, "option value.schema")
    assert raised.match(says)
