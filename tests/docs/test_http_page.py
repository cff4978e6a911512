"""`docs/http.md` says what the gateway does: each route, each answer, each code."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.generated import shown
from tests.docs.http_page import OPEN, PAGE, Example, answered, examples, masked, parts
from tests.docs.http_world import app
from tierstate.api import answer, records, service
from tierstate.api.media import RECORD_TYPES
from tierstate.api.problems import PLANS
from tierstate.runtime.pool import WAITING_PER_THREAD

REFRESH = "python -m tests.docs.http_page --write"
STAND_IN = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).with_name('curl.py')))}"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text()


def typed(page: str) -> list[Example]:
    return [case for block in re.findall(r"^```console\n(.*?)^```$", page, re.M | re.S) for case in examples(block)]


def every_route(router: Any) -> Iterator[Any]:
    """Yield all routes. FastAPI keeps an included router as it is, or copies its routes, depending on its version."""
    for route in router.routes:
        included = getattr(route, "original_router", None)
        yield from (route,) if included is None else every_route(included)


@pytest.mark.parametrize("curl", ["curl", pytest.param(STAND_IN, marks=pytest.mark.extended)], ids=["curl", "stand-in"])
def test_a_gateway_answers_every_command_of_the_page_as_it_says(page: str, curl: str) -> None:
    if curl == "curl" and shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    expected, answers = typed(page), typed(answered(page, shutil.which(curl) or curl))
    assert len(expected) > 20
    for before, now in zip(expected, answers, strict=True):
        assert masked(before.answer) == masked(now.answer), f"{now.command}\n{REFRESH}"


def test_an_answer_that_says_something_else_is_replaced(page: str) -> None:
    wrong = page.replace("customer-6", "customer-x").replace("retry-after: ", "retry-after: 1")
    assert wrong != page
    now = answered(wrong)
    assert "customer-6" in now
    assert "customer-x" not in now
    assert "retry-after: 1" in now, "what differs on every machine stays as it is"


def test_the_tables_are_what_the_code_says(page: str) -> None:
    for name, text in parts().items():
        assert shown(page, name) == text, REFRESH


def test_every_route_is_in_the_table_and_no_other(page: str) -> None:
    table = page.partition("\n## Routes\n")[2].partition("\n## ")[0]
    routes = list(every_route(app()))
    assert sorted(re.findall(r"^\| `(/[^`]*)`", table, re.M)) == sorted(route.path for route in routes)
    others = {route.path: route.methods for route in routes if route.methods - {"HEAD"} != {"GET"}}
    assert others == {PLANS: {"POST"}, f"{PLANS}/{{plan}}": {"DELETE"}}, "the page says: all others are GET"


def test_every_route_of_the_api_is_shown_by_a_command(page: str) -> None:
    urls = [url for example in typed(page) for url in re.findall(r"\$[GS](/v1[^?\"]*)", example.command)]
    for path in app().openapi()["paths"]:
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))
        assert any(re.fullmatch(pattern, url) for url in urls), path


def test_every_media_type_is_in_the_table_and_no_other(page: str) -> None:
    table = page.partition("\n### Media types\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(application/[^`]+)`", table, re.M) == list(RECORD_TYPES)


def test_every_header_of_records_is_explained(page: str) -> None:
    sent = set(re.findall(r'"(x-[\w-]+)"', Path(str(answer.__file__)).read_text()))
    assert {name.lower() for name in re.findall(r"^\| `(X-[\w-]+)`", page, re.M)} == sent


def test_the_limits_are_the_codes(page: str) -> None:
    limits = page.partition("\n## Limits\n")[2]
    assert f"{records.DEFAULT_BYTES >> 20} MiB unless asked for" in limits
    assert f"{service.METADATA_CALLS} for metadata; {WAITING_PER_THREAD} times as many wait" in limits
    assert f"| a long poll | {records.LONGEST_WAIT_MS // 1000} s |" in limits


def test_the_page_asks_at_the_default_address(page: str) -> None:
    assert f"$ G={OPEN}\n" in page
