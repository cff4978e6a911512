"""The access log says who read what: each call that could show data is a line, written when its answer is over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.gateways import RECORDS, MemoryReader, Running, Tokens, asgi_call, bearer, token_line
from tests.scenarios.house import eventually
from tests.twins.manual_clock import ManualClock
from tierstate.api.access_log import AccessLog
from tierstate.api.app import create_app
from tierstate.api.open import open_gateway
from tierstate.api.service import FetchService
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.listener import Event, GatewayAnswered
from tierstate.runtime.setting_types import Address
from tierstate.state.errors import InvalidSettings


def test_each_call_is_logged_with_who_read_what_and_no_secret(tokens: Tokens) -> None:
    lines: list[str] = []
    events: list[Event] = []
    reader = MemoryReader()
    reader.append(b"k", b"private words")
    settings = Gateway(auth=tokens(token_line("secret", "ann")))
    service = FetchService(reader, settings, ManualClock())
    ask = asgi_call(create_app(service, log=AccessLog(ManualClock(), events.append, lines.append)))
    answer = ask(RECORDS, offset=0, headers=bearer("secret"))
    for path in ("/v1/topics", "/", "/v1/topics/none"):
        ask(path, headers=bearer("secret"))
    ask("/v1/topics", headers=bearer("guessed"))
    entries = [json.loads(line) for line in lines]
    assert [(entry["user"], entry["path"], entry["status"]) for entry in entries] == [
        ("ann", RECORDS, 200),
        ("ann", "/v1/topics", 200),
        ("ann", "/v1/topics/none", 404),
        ("", "/v1/topics", 401),
    ]
    read = {name: entries[0][name] for name in ("bytes", "tier", "first_offset", "next_offset", "client", "time")}
    assert read == {
        "bytes": len(answer.content),
        "tier": "local",
        "first_offset": 0,
        "next_offset": 1,
        "client": "127.0.0.1",
        "time": "2023-11-14T22:13:20Z",
    }
    assert [type(event) for event in events] == [GatewayAnswered] * 4
    assert events[0] == GatewayAnswered(200, len(answer.content), 0.0, "ann", "t", "local")
    assert {(event.user, event.topic_read) for event in events[1:] if isinstance(event, GatewayAnswered)} == {
        ("ann", ""),
        ("", ""),
    }
    assert not any(word in text for text in lines for word in ("secret", "guessed", "private"))


def test_an_access_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    settings = Gateway(listen=Address("127.0.0.1", 0), access_log=tmp_path / "none" / "access.log")
    with pytest.raises(InvalidSettings, match=r"gateway\.access_log"):
        open_gateway(MemoryReader(), settings, ManualClock())


def test_the_access_log_of_a_gateway_is_its_file(serve: Callable[..., Running], tmp_path: Path) -> None:
    running = serve(MemoryReader(), access_log=tmp_path / "access.log")
    assert running.client.get("/v1/topics").status_code == 200
    eventually(lambda: (tmp_path / "access.log").read_text().count("\n") == 1)
    assert json.loads((tmp_path / "access.log").read_text())["path"] == "/v1/topics"
