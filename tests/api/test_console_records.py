"""The console's page of records in a real browser: what it shows after each start, step and search."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.api.browser import Browser, browser
from tests.api.gateways import MemoryReader
from tests.scenarios.house import eventually
from tests.servers.schema_registry import registry
from tests.values.registered import avro, framed, of_avro
from tierstate.api.open import open_gateway
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway, Registry
from tierstate.runtime.setting_types import Address

pytestmark = pytest.mark.chromium
HOSTILE = "<img src=x onerror=\"document.title='hacked'\">"
LONG = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}
SEAM, FIRST_AVRO, END = 100, 200, 204
Seen = Callable[[str, str], str]


@pytest.fixture(scope="module")
def records() -> MemoryReader:
    """Two hundred, the first half of them remote; then two with a schema, one that is damaged, one hostile.

    A call looks through one piece: up to the border of the tiers, or from there to the end.
    """
    log = MemoryReader()
    for number in range(FIRST_AVRO):
        log.append(b"key-%d" % (number % 10), b'{"number": %d}' % number)
    log.append(avro(8, "string", "known"), avro(7, LONG, {"n": 2**60 + 1, "s": HOSTILE}))
    log.append(b"plain", avro(7, LONG, {"n": 1, "s": "ü"}))
    log.append(None, framed(7, b"\2\x99"))
    log.append(b"hostile", HOSTILE.encode())
    log.local_start, log.found = SEAM, 150
    return log


@pytest.fixture(scope="module")
def url(records: MemoryReader) -> Iterator[str]:
    with registry({7: of_avro(LONG), 8: of_avro("string")}) as schemas:
        settings = Gateway(listen=Address("127.0.0.1", 0), scan_bytes=1)
        opened = open_gateway(records, settings, SystemClock(), registry=Registry(url=schemas.url))
        with closing(opened) as server:
            process = server.process()
            process.start()
            yield server.url
            process.stop()
            assert process.join(20)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
def seen(url: str, page: Browser) -> Seen:
    return lambda address, until: page.open(f"{url}/{address}", until)


def click(page: Browser, name: str) -> None:
    page.run(f"document.getElementById('{name}').click()")


def look_on(page: Browser) -> str:
    """Click "look on", and return the outcome that is shown then."""
    before = page.run("document.getElementById('outcome').innerText")
    click(page, "look-on")
    eventually(lambda: page.run("document.getElementById('outcome').innerText") != before)
    return str(page.run("document.getElementById('outcome').innerText"))


def offsets(page: Browser) -> list[int]:
    numbers: list[int] = page.run(
        "[...document.querySelectorAll('#table tbody tr')].map((row) => +row.cells[0].innerText)"
    )
    return numbers


def test_next_and_previous_cross_the_seam(seen: Seen, page: Browser) -> None:
    seen(f"#/t/0/{SEAM - 5}?count=5", "5 records, tier: remote")
    click(page, "next")
    page.text("5 records, tier: local; next offset 105 of 204.")
    assert offsets(page) == list(range(100, 105))
    click(page, "previous")
    page.text("tier: remote; next offset 100 of")
    assert offsets(page) == list(range(95, 100))
    seen(f"#/t/0/{SEAM - 2}?count=5", "5 records, tier: remote, local")
    assert offsets(page) == list(range(98, 103))


def test_reading_can_start_at_the_beginning_at_the_end_and_at_a_time(seen: Seen, page: Browser) -> None:
    seen("#/t/0/50?count=3", "3 records, tier")
    click(page, "first")
    page.text("next offset 3 of 204")
    click(page, "last")
    page.text("next offset 204 of 204")
    assert offsets(page) == [201, 202, 203]
    page.run("document.querySelector('input[name=from][value=time]').click()")
    page.run("document.getElementById('time').value = '2026-01-01T00:00:00'")
    page.run("document.getElementById('read').requestSubmit()")
    page.text("next offset 153 of 204")
    assert "/%4017672" in page.run("location.hash")


def test_a_filter_finds_as_the_gateway_does_and_look_on_goes_on_to_the_end(seen: Seen, page: Browser) -> None:
    text = seen("#/t/0/0?count=4&key=key-3", "looked through")
    assert "4 records found in 34 looked through" in text
    assert "up to offset 34 of 204. There may be more. Look on" in text
    assert offsets(page) == [3, 13, 23, 33]
    while "That is the end of the log" not in text:
        text = look_on(page)
    assert offsets(page) == list(range(3, 200, 10))
    assert "20 records found in 204 looked through" in text
    assert page.run("document.getElementById('look-on').hidden")


def test_a_scan_that_its_budget_ends_says_so_and_shows_progress(seen: Seen, page: Browser) -> None:
    text = seen("#/t/0/0?count=4&contains=nowhere", "looked through")
    assert "0 records found in 100 looked through" in text
    assert "The gateway looks no further in one call. Look on" in text
    click(page, "look-on")
    page.text("0 records found in 204 looked through")


def test_a_filter_is_typed_and_read_by_keyboard_alone_and_its_text_is_never_markup(seen: Seen, page: Browser) -> None:
    seen("#/t/0/200?count=20", "4 records, tier")
    page.run("document.getElementById('filter').focus()")
    page.type(HOSTILE)
    page.press("Enter")
    page.text("found in")
    assert offsets(page) == [200, 203]
    assert page.run("document.title") != "hacked"
    assert page.run("document.querySelectorAll('#table img').length") == 0


def test_decoded_shows_what_a_schema_says_with_every_digit_and_else_the_bytes_and_why(
    seen: Seen, page: Browser
) -> None:
    text = seen("#/t/0/200?count=4&view=decoded", "4 records, tier")
    assert '"known" AVRO 8' in text
    assert '{ "n": 1152921504606846977, "s": "<img src=x onerror=\\"document.title=\'hacked\'\\">" } AVRO 7' in text
    assert "plain it does not begin with 0 and the id of a schema" in text
    assert "00 00 00 00 07 02 99" in text
    assert "it is not of its schema" in text
    assert page.run("document.title") != "hacked"


def test_a_view_that_needs_other_records_reads_them_and_every_view_is_in_the_address(seen: Seen, page: Browser) -> None:
    seen("#/t/0/201?count=1", "1 record, tier")
    for view, shown in (
        ("decoded", '{ "n": 1, "s": "ü" } AVRO 7'),
        ("hex", "00 00 00 00 07 02 04 c3 bc"),
        ("json", "plain"),
    ):
        page.run(
            f"((v) => {{ v.value = '{view}'; v.dispatchEvent(new Event('change')); }})(document.getElementById('view'))"
        )
        page.text(shown)
        assert f"view={view}" in page.run("location.hash")


def test_the_address_of_a_view_opens_exactly_it_again(seen: Seen, page: Browser) -> None:
    seen("#/t/0/0?count=2&tier=remote&isolation=read_uncommitted&view=hex&contains=%3A%201", "found in")
    shown = "document.getElementById('records').innerText"
    before, address = page.run(shown), page.run("location.href")
    seen(address.partition("/#")[2].join(("#", "")), "found in")
    assert page.run(shown) == before
    assert page.run("document.getElementById('filter').value") == ": 1"
    controls = "['count', 'tier', 'isolation', 'view', 'filter-part'].map((id) => document.getElementById(id).value)"
    assert page.run(controls) == ["2", "remote", "read_uncommitted", "hex", "contains"]


@pytest.mark.parametrize(("name", "ending"), [("ndjson", "ndjson"), ("arrow", "arrows"), ("parquet", "parquet")])
def test_a_download_has_the_shown_records(seen: Seen, page: Browser, tmp_path: Path, name: str, ending: str) -> None:
    page.downloads_to(tmp_path)
    seen("#/t/0/90?count=20&contains=5%7D", "found in")
    shown = offsets(page)
    assert shown == [95]
    click(page, "look-on")
    page.text("found in 114 looked through")
    shown = offsets(page)
    click(page, name)
    file = tmp_path / f"t-0-95.{ending}"
    eventually(file.exists)
    if name == "ndjson":
        numbers = [json.loads(line)["offset"] for line in file.read_text().splitlines()]
    elif name == "arrow":
        numbers = pa.ipc.open_stream(file.read_bytes()).read_all().column("offset").to_pylist()
    else:
        numbers = parquet.read_table(file).column("offset").to_pylist()
    assert numbers == shown[: len(numbers)]
    assert len(numbers) == len(shown) or "The file ends before offset" in page.text("The file ends")


def test_a_page_that_follows_shows_what_arrives_of_what_is_looked_for(
    seen: Seen, page: Browser, records: MemoryReader
) -> None:
    end = len(records.batches)
    seen(f"#/t/0/{end}?count=5&contains=wanted&follow&view=text", "Following")
    records.append(b"late", b"other")
    records.append(b"late", b"wanted")
    text = page.text(f"Following: next offset {end + 2}.")
    assert "late wanted" in text
    assert "late other" not in text


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("address", ["#/t/0/0?count=20&key=key-3", "#/t/0/200?count=4&view=decoded"])
def test_nothing_is_off_the_screen(seen: Seen, page: Browser, address: str, width: int) -> None:
    page.width(width)
    seen(address, "found in" if "key=" in address else "4 records, tier")
    assert page.run("document.documentElement.scrollWidth") <= width
