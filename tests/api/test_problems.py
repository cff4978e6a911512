"""Every error class has a status and a code; bodies show what a caller may see."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.api.gateways import MemoryReader, asgi_call
from tierstate.api import problems
from tierstate.api.app import create_app
from tierstate.api.problems import OF_ERROR, problem_of, problem_response
from tierstate.api.service import FetchService
from tierstate.fetch.batch_order import Misplaced
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.state import errors
from tierstate.state.errors import TierstateError


def every_class(root: type[TierstateError] = TierstateError) -> Iterator[type[TierstateError]]:
    yield root
    for below in root.__subclasses__():
        yield from every_class(below)


def made(kind: type[TierstateError]) -> TierstateError:
    if issubclass(kind, errors.OffsetOutOfRange):
        return kind("offset out of range", valid_start=3, valid_end=9)
    if issubclass(kind, errors.LogGap):
        return kind("offsets belong to no tier", start=3, end=9)
    if issubclass(kind, errors.InvalidSettings):
        return kind(["store.url: wrong"])
    if issubclass(kind, errors.MissingExtra):
        return kind("gateway", "the gateway")
    return kind("something is wrong")


OURS = [kind for kind in every_class() if kind.__module__ in (errors.__name__, problems.__name__)]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_class_has_a_line_of_its_own_whose_code_begins_with_its_status(kind: type[TierstateError]) -> None:
    line = OF_ERROR[kind]
    assert line.error_code // 100 == line.status
    answer = problem_response(made(kind))
    assert answer.status_code == line.status
    body = json.loads(bytes(answer.body))
    assert body["error_code"] == line.error_code
    assert body["error"] == kind.__name__
    assert body["message"]


def test_damage_names_the_object_and_the_place_and_never_a_file_of_the_gateway() -> None:
    place = {"topic": "orders", "partition": 3, "offset": 17, "file": "orders-x/3/0-y.log", "position": 512, "chunk": 0}
    step = {"next": "tierstate verify orders:3 --level 3"}
    body = json.loads(bytes(problem_response(Misplaced("batch offsets do not increase", **place, **step)).body))
    assert {name: body[name] for name in (*place, *step)} == {**place, **step}
    assert (body["error"], body["error_code"]) == ("CorruptData", 50055)
    assert "partition=orders-3" in body["message"]
    local = problem_response(errors.CorruptData("a view is damaged", file="/var/lib/tierstate/view", position=3))
    assert b"/var/lib" not in bytes(local.body)


def test_no_two_classes_share_a_code() -> None:
    codes = [problem.error_code for problem in OF_ERROR.values()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", list(every_class(errors.Unavailable)), ids=lambda kind: kind.__name__)
def test_errors_that_may_be_retried_say_when(kind: type[TierstateError]) -> None:
    answer = problem_response(made(kind))
    assert answer.status_code == (429 if issubclass(kind, errors.Throttled) else 503)
    assert int(answer.headers["retry-after"]) > 0


def test_a_subclass_without_a_line_has_its_parents() -> None:
    class Moved(errors.BrokerUnavailable):
        pass

    assert problem_of(Moved("moved")) == OF_ERROR[errors.BrokerUnavailable]


def test_a_partition_that_does_not_exist_has_the_rest_proxys_code() -> None:
    assert problem_of(errors.UnknownTopic("no such topic", topic="t")).error_code == 40401
    assert problem_of(errors.UnknownTopic("no such partition", topic="t", partition=7)).error_code == 40402


def test_out_of_range_carries_the_valid_range() -> None:
    body = json.loads(bytes(problem_response(made(errors.OffsetOutOfRange)).body))
    assert (body["valid_start"], body["valid_end"]) == (3, 9)


def test_file_names_and_addresses_are_not_shown() -> None:
    error = errors.CorruptData("batch CRC does not match", file="/var/secret/0.log", reason="boom", offset=3)
    body = bytes(problem_response(error).body)
    assert b"secret" not in body
    assert b"boom" not in body
    assert json.loads(body)["offset"] == 3


def test_a_bug_answers_500_without_its_message_or_stack_trace() -> None:
    class Broken(MemoryReader):
        def topics(self) -> list[str]:
            raise KeyError("/a/path")

    service = FetchService(Broken(), Gateway(), SystemClock())
    answer = asgi_call(create_app(service))("/v1/topics")
    service.close()
    assert answer.status_code == 500
    assert answer.json() == {
        "error_code": 50050,
        "message": "this is a bug in tierstate; its log says more",
        "error": "InternalError",
    }
