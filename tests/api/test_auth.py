"""Bearer tokens: everything that shows data needs one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.gateways import RECORDS, Call, MemoryReader, asgi_call
from tierstate.api.app import create_app
from tierstate.api.auth import read_tokens
from tierstate.api.service import FetchService
from tierstate.runtime.clock import ManualClock
from tierstate.runtime.settings import Gateway, GatewayAuth
from tierstate.state.errors import InvalidSettings


def tokens_file(folder: Path, text: str) -> GatewayAuth:
    path = folder / "tokens"
    path.write_text(text)
    return GatewayAuth(tokens=path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def guarded(tmp_path: Path, clock: ManualClock) -> Call:
    """Two principals who may read 1 KiB a second each."""
    tokens = read_tokens(tokens_file(tmp_path, "# people\n\nsecret-a  ann\nsecret-b bob\n"))
    reader = MemoryReader()
    for _ in range(10):
        reader.append(None, b"x" * 1000)
    return asgi_call(create_app(FetchService(reader, Gateway(quota=1024), clock), tokens))


@pytest.mark.parametrize(
    "header", [None, "secret-a", "Bearer", "Bearer ", "Bearer wrong", "Bearer SECRET-A", "Basic secret-a", "Bearer ann"]
)
@pytest.mark.parametrize("path", ["/v1/topics", f"{RECORDS}?offset=0", "/v1/topics/t", "/v1/nothing", "/v1"])
def test_without_a_known_token_nothing_is_shown(guarded: Call, path: str, header: str | None) -> None:
    answer = guarded(path, headers={} if header is None else {"authorization": header})
    assert (answer.status_code, answer.json()["error_code"]) == (401, 40101)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_with_a_token_the_gateway_answers(guarded: Call) -> None:
    assert guarded("/v1/topics", headers={"authorization": "Bearer secret-a"}).status_code == 200
    assert guarded("/v1/topics", headers={"authorization": "bearer secret-b"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/console/console.js"])
def test_the_console_itself_needs_no_token(guarded: Call, path: str) -> None:
    assert guarded(path).status_code == 200


def test_a_quota_is_each_principals_own(guarded: Call, clock: ManualClock) -> None:
    ann, bob = {"authorization": "Bearer secret-a"}, {"authorization": "Bearer secret-b"}
    assert guarded(RECORDS, offset=0, headers=ann).status_code == 200
    throttled = guarded(RECORDS, offset=0, headers=ann)
    assert (throttled.status_code, throttled.json()["error_code"]) == (429, 42950)
    assert guarded(RECORDS, offset=0, headers=bob).status_code == 200
    clock.advance(float(throttled.headers["retry-after"]))
    assert guarded(RECORDS, offset=0, headers=ann).status_code == 200


@pytest.mark.parametrize("text", ["", "# nobody\n", "token\n", "token a b\n"])
def test_a_tokens_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        read_tokens(tokens_file(tmp_path, text))
    assert "token a" not in str(raised.value)


def test_a_missing_tokens_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings):
        read_tokens(GatewayAuth(tokens=tmp_path / "none"))
