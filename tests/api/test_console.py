"""The console in a real browser shows what the gateway answers. Skipped where there is no Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from tests.api.browser import Browser, browser
from tests.api.gateways import MemoryReader, Tokens, token_line
from tests.api.json_server import json_server
from tests.api.many_topics import ManyTopics
from tierstate.api.open import GatewayServer, open_gateway
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth
from tierstate.runtime.setting_types import Address

pytestmark = pytest.mark.chromium
HOSTILE = '<img src=x onerror="document.title=1"> &amp; "quoted"'
Seen = Callable[[str, str], str]


SAID = {
    "not_trimmed": "group <b>audit</b> has not read it",
    "not_copied": "copying is paused",
    "not_expired": "leased to nightly",
    "not_erased": None,
    "copy_lag_segments": 3,
    "copy_lag_bytes": 3 << 30,
    "last_error": None,
}


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """Run an agent that answers for ``calm``, partition 0; yield its address."""
    with json_server({"/v1/status/calm/0": SAID}) as server:
        yield server.address


def reader(agent: str) -> MemoryReader:
    agents = {"calm": agent, "payments": agent}
    topics = ManyTopics({"calm": 1, "orders": 30, "payments": 2}, "orders", "payments", agents)
    for number in range(50):
        topics.append(b"key-%d" % number, b'{"number": %d}' % number)
    topics.append(b"hostile", HOSTILE.encode())
    headers = [("trace", b'{"id": 12345678901234567890}'), ("raw", b"\xff\0"), ("none", None)]
    topics.append(b"exact", b'{"id": 12345678901234567890, "price": 1.10}', headers=headers)
    topics.local_start, topics.found = 5, 0
    return topics


@pytest.fixture(scope="module")
def records(agent: str) -> MemoryReader:
    return reader(agent)


@contextmanager
def serving(records: MemoryReader, auth: GatewayAuth) -> Iterator[GatewayServer]:
    settings = Gateway(listen=Address("127.0.0.1", 0), auth=auth)
    with closing(open_gateway(records, settings, SystemClock())) as opened:
        process = opened.process()
        process.start()
        yield opened
        process.stop()
        assert process.join(20)


@pytest.fixture(scope="module")
def server(records: MemoryReader) -> Iterator[GatewayServer]:
    with serving(records, GatewayAuth()) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
def seen(server: GatewayServer, page: Browser) -> Seen:
    """Return a function that opens an address, and returns the page's text once ``until`` is in it."""
    return lambda address, until: page.open(f"{server.url}/{address}", until)


def test_topics_in_trouble_stand_first_with_their_trouble_in_words(seen: Seen) -> None:
    text = seen("", "3 topics")
    rows = [text.index(name) for name in ("payments", "orders", "calm")]
    assert rows == sorted(rows)
    assert "read only (1 partition)" in text
    assert "order: pause since 2026-01-01T00:00:00" in text
    assert "by ann@desk" in text
    assert "3 topics" in text


TABLE = dict(table="kafka.calm", topic="calm", rows=1234, files=7, lag=0, lag_seconds=0.0)
TABLES = [
    TABLE | {"state": "current", "last_commit": "2026-01-01T00:00:00Z", "reason": None},
    TABLE
    | {
        "table": "kafka.late",
        "lag": 5000,
        "lag_seconds": 7200.0,
        "state": "behind",
        "last_commit": None,
        "reason": None,
    },
    dict.fromkeys(TABLE)
    | {"table": "kafka.bad", "state": "stopped", "last_commit": None, "reason": f"a file {HOSTILE}"},
]


def test_tables_are_a_page_with_those_in_trouble_first(seen: Seen, page: Browser, server: GatewayServer) -> None:
    assert "No table:" in seen("#/:tables", "0 tables")
    server.service.tables = lambda: TABLES
    text = seen("#/:tables", "3 tables")
    assert "tables" in text.partition("Live")[0], "the way back to the topics names the page"
    rows = page.run(
        "[...document.querySelectorAll('#tables-table tbody tr')].map(row => row.innerText.trim().split(/\\s*\\t\\s*/))"
    )
    assert rows == [
        ["kafka.bad", "unknown", f"stopped: a file {HOSTILE}", "unknown", "unknown", "unknown", "none"],
        ["kafka.late", "calm", "behind", "1,234", "7", "5,000, 2 h", "none"],
        ["kafka.calm", "calm", "current", "1,234", "7", "0", "2026-01-01 00:00:00"],
    ]
    server.service.tables = lambda: []


def test_a_user_without_a_token_sees_nothing_and_one_with_a_token_its_topics(
    page: Browser, records: MemoryReader, tokens: Tokens
) -> None:
    with serving(records, tokens(token_line("secret", "ann"))) as guarded:
        text = page.open(guarded.url, "the gateway takes a bearer token")
        assert "payments" not in text
        for word, outcome in (("guessed", "not known"), ("secret", "3 topics")):
            page.run("document.getElementById('token').value = ''; document.getElementById('token').focus()")
            page.type(word)
            page.press("Enter")
            text = page.text(outcome)
        assert "Bearer token" not in text
        assert "3 topics" in page.open(f"{guarded.url}/#/", "payments"), "the token is kept for this tab"


def test_a_topic_of_many_partitions_shows_twelve_at_a_time_and_the_orders_that_stand(seen: Seen, page: Browser) -> None:
    text = seen("#/orders", "0 to 11 of 30")
    assert "orders: 30 partitions" in text
    assert page.run("document.querySelectorAll('.partition').length") == 12
    assert text.count("order: pause since") == 1, "what stands on all of them is said once"
    assert "copy lag" not in text
    assert "tierstate resume orders" in page.run("document.getElementById('commands').textContent")
    page.run("document.getElementById('more').click()")
    page.text("12 to 23 of 30")
    page.run("document.getElementById('go-to-partition').value = 29; document.querySelector('#go-to button').click()")
    page.text("29 of 30")
    assert page.run("document.querySelectorAll('.partition').length") == 1


def test_an_address_is_exactly_the_records_that_it_showed(seen: Seen) -> None:
    text = seen("#/calm/0/3?count=4&tier=auto&isolation=read_committed", "4 records")
    assert "4 records, tier: remote, local; next offset 7 of 52." in text
    assert [f"key-{number} " in text for number in (2, 3, 6, 7)] == [False, True, True, False]


def test_what_producers_wrote_is_text_and_never_markup(seen: Seen) -> None:
    text = seen("#/calm/0/50?count=1", "1 record,")
    assert HOSTILE in text


def test_an_error_is_shown_in_place_of_the_records(seen: Seen) -> None:
    assert seen("#/calm/0/99", "offset out of range")


def test_the_page_of_records_shows_its_own_partition_alone(seen: Seen, page: Browser) -> None:
    seen("#/orders/29/@0?count=2", "2 records")
    page.text("orders: partition 29")
    assert page.run("document.querySelectorAll('.partition').length") == 1


def test_a_missing_topic_is_reported(seen: Seen) -> None:
    assert seen("#/nobody", "no such topic")


def test_the_page_shows_the_agents_own_words(seen: Seen) -> None:
    text = seen("#/calm", "not trimmed")
    assert "not copied: copying is paused" in text
    assert "not trimmed: group <b>audit</b> has not read it" in text
    assert "not expired: leased to nightly" in text
    assert "waiting to be copied: 3 segments, 3.0 GiB" in text
    assert "not erased" not in text


def test_a_silent_agent_is_shown_as_silent(seen: Seen) -> None:
    assert "did not answer" in seen("#/payments", "the agent for broker 7 (")


def test_values_are_shown_as_json_with_every_digit_and_as_bytes(seen: Seen) -> None:
    assert seen("#/calm/0/51?count=1&view=json", '{ "id": 12345678901234567890, "price": 1.10 }')
    assert seen("#/calm/0/51?count=1&view=hex", "65 78 61 63 74")


@pytest.mark.parametrize(
    ("view", "shown"),
    [
        ("text", 'trace={"id": 12345678901234567890} raw=base64: /wA= none=null'),
        ("json", 'trace={ "id": 12345678901234567890 } raw=base64: /wA= none=null'),
        ("hex", "raw=ff 00 .. none=null"),
    ],
)
def test_headers_are_shown_as_keys_and_values_are(seen: Seen, view: str, shown: str) -> None:
    assert seen(f"#/calm/0/51?count=1&view={view}", shown)


def test_a_page_that_follows_shows_what_arrives(seen: Seen, page: Browser, records: MemoryReader) -> None:
    end = len(records.batches)
    seen(f"#/calm/0/{end - 1}?count=5&follow", "1 record,")
    records.append(b"late", b"it arrived")
    assert "late it arrived" in page.text(f"Following: next offset {end + 1}.")


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("address", ["", "#/orders", "#/calm/0/0?count=20", "#/calm/0/50?count=2&view=hex"])
def test_nothing_is_off_the_screen_of_a_phone_or_a_desk(seen: Seen, page: Browser, address: str, width: int) -> None:
    page.width(width)
    seen(address, "records" if "/0/" in address else "remote")
    assert page.run("document.documentElement.scrollWidth") <= width


def test_a_topic_and_its_records_are_reached_by_keyboard_alone(seen: Seen, page: Browser) -> None:
    seen("", "3 topics")
    tab_to(page, "payments")
    page.press("Enter")
    page.text("payments: 2 partitions")
    tab_to(page, "Records")
    page.press("Enter")
    page.text("20 records, tier")


def tab_to(page: Browser, text: str) -> None:
    """Press Tab until the focus is on an element with this text."""
    for _ in range(60):
        page.press("Tab")
        if page.run("document.activeElement.textContent.trim()") == text:
            return
    raise AssertionError(f"nothing called {text} can be reached")
