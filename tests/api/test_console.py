"""The console in a real browser: what an operator sees is what the gateway says. Skipped where there is no Chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest

from tests.api.gateways import MemoryReader
from tests.api.many_topics import ManyTopics
from tierstate.api.open import GatewayServer, open_gateway
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.setting_types import Address

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
HOSTILE = '<img src=x onerror="document.title=1"> &amp; "quoted"'
Seen = Callable[[str], str]


def reader() -> MemoryReader:
    found = ManyTopics({"calm": 1, "orders": 30, "payments": 2}, paused="orders", in_trouble="payments")
    for number in range(50):
        found.append(b"key-%d" % number, b'{"number": %d}' % number)
    found.append(b"hostile", HOSTILE.encode())
    found.local_start, found.found = 5, 0
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[GatewayServer]:
    with closing(open_gateway(reader(), Gateway(listen=Address("127.0.0.1", 0)), SystemClock())) as opened:
        process = opened.process()
        process.start()
        yield opened
        process.stop()
        assert process.join(20)


@pytest.fixture
def seen(server: GatewayServer, tmp_path: Path) -> Seen:
    """The text of a page, once its scripts have run; ``«name»`` begins an element with that id."""

    def look(address: str) -> str:
        assert CHROMIUM is not None
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
        command += ["--virtual-time-budget=3000", "--dump-dom", f"{server.url}/{address}"]
        drawn = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        body = re.sub(r'<[^>]*hidden=""[^>]*>', "«hidden»", drawn.partition("<body>")[2])
        return unescape(" ".join(re.sub(r"<[^>]*>", " ", body).split()))

    return look


def test_topics_in_trouble_stand_first_with_their_trouble_in_words(seen: Seen) -> None:
    text = seen("")
    rows = [text.index(name) for name in ("payments", "orders", "calm")]
    assert rows == sorted(rows)
    assert "read only (1 partition)" in text
    assert "order: pause since 2026-01-01T00:00:00" in text
    assert "by ann@desk" in text
    assert "3 topics" in text


def test_a_topic_of_many_partitions_shows_twelve_at_a_time_and_the_orders_that_stand(seen: Seen) -> None:
    text = seen("#/orders")
    assert "orders: 30 partitions" in text
    assert "0 to 11 of 30" in text
    assert text.count("high watermark") == 12
    assert text.count("order: pause since") == 12
    assert "copy lag" not in text
    assert "tierstate resume orders" in text


def test_an_address_is_exactly_the_records_that_it_showed(seen: Seen) -> None:
    text = seen("#/calm/0/3?count=4&tier=auto&isolation=read_committed")
    assert "4 records, tier: remote, local; next offset 7 of 51." in text
    assert [f"key-{number} " in text for number in (2, 3, 6, 7)] == [False, True, True, False]


def test_what_producers_wrote_is_text_and_never_markup(seen: Seen) -> None:
    text = seen("#/calm/0/50?count=1")
    assert HOSTILE in text


def test_an_error_is_said_where_the_records_would_be(seen: Seen) -> None:
    assert "offset out of range" in seen("#/calm/0/99")


def test_the_page_of_records_shows_its_own_partition_alone(seen: Seen) -> None:
    text = seen("#/orders/29/@0?count=2")
    assert text.count("high watermark") == 1
    assert "2 records" in text


def test_a_topic_that_is_not_there_is_said(seen: Seen) -> None:
    assert "no such topic" in seen("#/nobody")
