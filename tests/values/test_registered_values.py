"""Values by a schema registry: what the real libraries wrote is shown, all else is a reason, within bounds."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from threading import Event, Thread
from typing import Any

import pytest

from tests.servers.schema_registry import Answer
from tests.twins.manual_clock import ManualClock
from tests.values.registered import ORDER, avro, framed, of_avro, reading, reason, shown
from tierstate.runtime.gateway_settings import Registry as Settings
from tierstate.state.errors import Unavailable
from tierstate.values.registered_schemas import AGAIN_S, MOST_ASKED, Decoder, RegisteredSchemas
from tierstate.values.registered_values import MOST_JSON, MOST_VALUE, open_registered_values
from tierstate.values.schema_registry import MOST_BYTES, RegisteredSchema

NESTED = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}


def test_avro_is_shown_with_what_its_types_mean() -> None:
    value = {
        "id": 2**62 + 1,
        "price": Decimal("12.30"),
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "raw": b"\xff\0",
        "ratio": float("inf"),
        "tags": {"a": None, 'q"\n': "ü"},
    }
    with reading({7: of_avro(ORDER)}) as (values, server):
        assert shown(values, avro(7, ORDER, value)) == {
            "schemaId": 7,
            "schemaType": "AVRO",
            "value": {
                **value,
                "price": "12.30",
                "at": "2026-01-02T03:04:05+00:00",
                "day": "2026-01-02",
                "raw": {"base64": "/wA="},
                "ratio": "inf",
            },
        }
        shown(values, avro(7, ORDER, value))
        assert server.asked == ["/schemas/ids/7"]


def test_types_of_other_schemas_are_asked_for_where_the_registry_has_them() -> None:
    item = {"type": "record", "name": "shop.Item", "fields": [{"name": "n", "type": "int"}]}
    order = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "items", "type": {"type": "array", "items": "shop.Item"}}],
    }
    written = avro(
        2**31 + 5,
        order | {"fields": [{"name": "items", "type": {"type": "array", "items": item}}]},
        {"items": [{"n": 4}]},
    )
    refers = [{"name": "shop.Item", "subject": "shop/items?x=1", "version": 3}]
    answers: dict[int | str, Answer] = {
        2**31 + 5: of_avro(order, references=refers),
        "/subjects/shop%2Fitems%3Fx%3D1/versions/3": of_avro(item),
    }
    with reading(answers) as (values, _):
        assert shown(values, written)["value"] == {"items": [{"n": 4}]}


def test_json_is_shown_as_it_was_written() -> None:
    with reading({7: (200, {"schema": "{}", "schemaType": "JSON"})}) as (values, _):
        text = b'{\n "price": 1.10,\r\n "id": 12345678901234567890, "s": "a\\nb"}'
        assert b'"price": 1.10' in values.of_answer().json(framed(7, text))
        assert b"12345678901234567890" in values.of_answer().json(framed(7, text))
        assert shown(values, framed(7, text))["value"]["s"] == "a\nb"
        assert "not of its schema" in reason(values, framed(7, b"{"))
        assert "not of its schema" in reason(values, framed(7, b"[" * 100_000))


@pytest.mark.parametrize("data", [b"", b"{}", b"\0\0\0", b"\1\0\0\0\7"])
def test_what_names_no_schema_is_said_and_nobody_is_asked(data: bytes) -> None:
    with reading({}) as (values, server):
        assert "does not begin with 0" in reason(values, data)
        assert shown(values, None) is None
        assert server.asked == []


def test_damaged_avro_is_said_and_a_value_of_any_depth_ends_nothing() -> None:
    others: dict[int | str, Answer] = {
        9: of_avro(["null", "int"]),
        10: of_avro({"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    }
    with reading({7: of_avro(ORDER), 8: of_avro(NESTED), **others}) as (values, _):
        assert "EOFError" in reason(values, framed(7, b"\2"))
        assert "RecursionError" in reason(values, framed(8, b"\2" * 200_000))
        assert "no member -1" in reason(values, framed(8, b"\1"))
        assert "no member -1" in reason(values, framed(9, b"\1"))
        assert "no member -2" in reason(values, framed(10, b"\3"))
        assert shown(values, framed(8, b"\2\2\0"))["value"] == {"n": {"n": {"n": None}}}


WITHIN = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": {"type": "array", "items": "R"}},
        {"name": "b", "type": {"type": "map", "values": {"type": "array", "items": "null"}}},
    ],
}
HOLLOW = {"type": "record", "name": "H", "fields": [{"name": f"f{n}", "type": "null"} for n in range(9)]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        {"type": "array", "items": {"type": "record", "name": "E", "fields": []}},
        WITHIN,
        HOLLOW,
    ],
)  # fmt: skip
def test_a_schema_whose_values_are_endless_without_a_byte_is_refused(schema: Any) -> None:
    with reading({7: of_avro(schema)}) as (values, _):
        assert "no bytes" in reason(values, framed(7, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"))


def test_json_that_would_be_much_more_than_its_bytes_is_bounded() -> None:
    schema = {
        "type": "array",
        "items": {"type": "record", "name": "R", "fields": [{"name": "x" * 5000, "type": "boolean"}]},
    }
    with reading({7: of_avro(schema)}) as (values, _):
        answer = values.of_answer()
        small = avro(7, schema, [{"x" * 5000: True}] * 1000)
        assert "value" in json.loads(answer.json(small))
        assert "more than" in json.loads(answer.json(avro(7, schema, [{"x" * 5000: True}] * 3000)))["reason"]
        assert "value" in json.loads(answer.json(avro(7, schema, [])))
        assert "not decoded" in reason(values, framed(7, bytes(MOST_VALUE)))
    assert MOST_JSON < 16 << 20


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ((200, b"x" * (MOST_BYTES + 1)), "larger than"),
        ((200, {"schema": "[" * 50_000 + "]" * 50_000}), "nested too deep"),
        ((200, b'{"references":' + b"[" * 50_000), "does not answer as one"),
        ((200, {"schema": '{"type":' * 600 + '"int"' + "}" * 600}), ""),
        ((200, {"schema": "{"}), "is no Avro schema"),
        ((200, {"schema": "x", "schemaType": "XML"}), "of the type XML are not read"),
        ((200, b"[]"), "does not answer as one"),
        ((302, "http://127.0.0.1:1/elsewhere"), "does not answer as one"),
        ((401, {}), "refuses"),
        ((404, {}), "no schema of this id"),
        ((500, {}), "does not answer as one"),
    ],
)  # fmt: skip
def test_whatever_a_registry_answers_is_a_reason_beside_the_bytes(said: Answer, why: str) -> None:
    with reading({7: said}) as (values, _):
        found = shown(values, framed(7, b"\2"))
        assert why in found.get("reason", "")


def test_references_that_go_round_come_to_an_end() -> None:
    round_: Any = {"references": [{"name": "B", "subject": "b", "version": 1}]}
    more: dict[int | str, Answer] = {
        f"/subjects/s{n}/versions/1": of_avro(
            "int", references=[{"name": f"N{n}", "subject": f"s{n + 1}", "version": 1}]
        )
        for n in range(100)
    }
    answers: dict[int | str, Answer] = {
        7: of_avro("int", **round_),
        "/subjects/b/versions/1": of_avro("int", **round_),
        8: of_avro("int", references=[{"name": "N0", "subject": "s0", "version": 1}]),
        **more,
    }
    with reading(answers) as (values, server):
        assert "more than 64" in reason(values, framed(7, b"\2"))
        assert "more than 64" in reason(values, framed(8, b"\2"))
        assert len(server.asked) < 140


def test_a_registry_that_is_away_is_waited_for_once_and_asked_again_after_seconds() -> None:
    clock = ManualClock()
    with reading({7: (503, {}), 8: of_avro("int")}, clock) as (values, server):
        assert "does not answer" in reason(values, framed(7, b"\2"))
        assert "does not answer" in reason(values, framed(8, b"\2"))
        assert len(server.asked) == 1
        clock.advance(AGAIN_S + 1)
        assert shown(values, framed(8, b"\2"))["value"] == 1


def test_an_id_that_is_not_there_stops_no_other() -> None:
    with reading({8: of_avro("int")}) as (values, server):
        for _ in range(3):
            assert "no schema of this id" in reason(values, framed(7, b"\2"))
            assert shown(values, framed(8, b"\2"))["value"] == 1
        assert len(server.asked) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        (302, "http://127.0.0.1:1/elsewhere"),
        (307, "/schemas/ids/8"),
        (403, {}),
        (410, {}),
        (200, b"[]"),
        (200, b"<html>"),
    ],
    ids=["redirect", "redirect here", "forbidden", "gone", "list", "page"],
)
def test_an_id_that_is_answered_otherwise_stops_no_other(wrong: Answer) -> None:
    with reading({7: wrong, 8: of_avro("int")}) as (values, server):
        for _ in range(3):
            assert reason(values, framed(7, b"\2"))
            assert shown(values, framed(8, b"\2"))["value"] == 1
        assert len(server.asked) == 2, "neither is asked again"


def test_a_schema_that_a_library_fails_at_stops_no_other() -> None:
    def make(id: int, schema: RegisteredSchema) -> Decoder:
        return Decoder("AVRO", 1 // (id - 7), lambda data, into: None)

    clock = ManualClock()
    schemas, until = (
        RegisteredSchemas(lambda id: RegisteredSchema("AVRO", "", ()), make, clock, 1 << 20),
        clock.monotonic() + 60,
    )
    with pytest.raises(Unavailable, match="ZeroDivisionError"):
        schemas.decoder(7, until)
    assert schemas.decoder(8, until).kind == "AVRO"


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_registry_that_serves_nobody_is_asked_once(status: int) -> None:
    with reading({7: (status, {}), 8: of_avro("int")}) as (values, server):
        assert reason(values, framed(7, b"\2")) == reason(values, framed(8, b"\2"))
        assert len(server.asked) == 1


def wait_for(event: Event) -> None:
    event.wait(20)


def test_a_slow_registry_is_waited_for_no_longer_than_an_answer_may() -> None:
    go, clock = Event(), ManualClock()
    with reading({7: of_avro("int"), 8: of_avro("int")}, clock, timeout=0.05) as (values, server):
        server.before = lambda path: wait_for(go)
        try:
            answer = values.of_answer()
            assert "in time" in json.loads(answer.json(framed(7, b"\2")))["reason"]
            assert "in time" in json.loads(answer.json(framed(8, b"\2")))["reason"]
            assert server.asked == ["/schemas/ids/7"]
            clock.advance(AGAIN_S + 1)
            for id in range(10, 10 + 2 * MOST_ASKED):
                clock.advance(AGAIN_S + 1)
                assert reason(values, framed(id, b"\2"))
            assert len(server.asked) <= 4 * MOST_ASKED
        finally:
            go.set()


def test_schemas_that_do_not_fit_are_asked_for_again_and_the_cache_stays_as_large_as_it_may() -> None:
    large = {"type": "enum", "name": "E", "symbols": ["A"], "doc": "x" * 20_000}
    with reading({id: of_avro(large) for id in range(1, 8)}, cache=50_000) as (values, server):
        for id in (1, 1, 2, 3, 3, 1):
            assert shown(values, framed(id, b"\0"))["value"] == "A"
        assert server.asked == [f"/schemas/ids/{id}" for id in (1, 2, 3, 1)]


def test_many_who_ask_for_one_schema_ask_the_registry_once() -> None:
    go, found = Event(), list[Any]()
    with reading({7: of_avro("int")}) as (values, server):
        server.before = lambda path: wait_for(go)
        threads = [Thread(target=lambda: found.append(shown(values, framed(7, b"\2")))) for _ in range(8)]
        for thread in threads:
            thread.start()
        go.set()
        for thread in threads:
            thread.join()
        assert ([each["value"] for each in found], len(server.asked)) == ([1] * 8, 1)


def test_credentials_are_sent_and_in_no_reason() -> None:
    with reading({7: (403, {})}, user="ann", password="s3cret") as (values, server):
        assert "s3cret" not in reason(values, framed(7, b"\2"))
        assert server.headers["authorization"] == "Basic " + b64encode(b"ann:s3cret").decode()


def test_without_an_address_nothing_is_decoded() -> None:
    assert open_registered_values(Settings(), ManualClock()) is None
