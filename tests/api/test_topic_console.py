"""A topic's page in a real browser: bars lie where offsets and times do, and show the tiers and the readers."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.browser import Browser
from tests.api.screenshots import console
from tests.api.shop import TOPICS, Kept, Shop
from tests.scenarios.house import eventually
from tierstate.broker.groups import GroupProblem, TopicGroups
from tierstate.fetch.piece import Fetched, LogicalBounds, LogicalTopic
from tierstate.runtime.visible import HIDDEN
from tierstate.state.errors import BrokerUnavailable
from tierstate.state.ids import TopicIdPartition
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import Isolation, Tier

CONSOLE = Path(__file__).parents[2] / "api" / "console"
CLOSE = 0.005


def bars(page: Browser, partition: int) -> list[tuple[str, float, float]]:
    """Return the kind of each bar, and where it begins and ends on the axis, 0 to 1."""
    script = (
        f"[...document.querySelectorAll('.partition')[{partition}].querySelectorAll('.track button')]"
        ".map(b => [b.className, parseFloat(b.style.left), parseFloat(b.style.width)])"
    )
    return [(kind, left / 100, (left + width) / 100) for kind, left, width in page.run(script)]


def choose(page: Browser, axis: str) -> None:
    page.run(f"document.querySelector('input[name=axis][value={axis}]').click()")
    page.text("UTC" if axis == "time" else "offset")


def column(page: Browser, nth: int) -> list[str]:
    """Return the texts of a column of the table of topics."""
    texts: list[str] = page.run(
        f"[...document.querySelectorAll('#topics tbody tr')].map(r => r.cells[{nth}].innerText)"
    )
    return texts


@pytest.mark.chromium
def test_topics_are_found_by_a_part_of_their_name_and_sorted_by_any_column(page: Browser, url: str) -> None:
    page.open(f"{url}/", "6 topics")
    assert sorted(column(page, 0)) == sorted(TOPICS)
    sort = "[...document.querySelectorAll('#topics th button')].find(b => b.textContent === 'Partitions').click()"
    for turned in (False, True):
        page.run(sort)
        by_partitions = sorted(TOPICS, key=lambda name: TOPICS[name].partitions, reverse=not turned)
        assert column(page, 0) == by_partitions
        direction = page.run("document.querySelector('#topics th[aria-sort]').ariaSort")
        assert direction == ("ascending" if turned else "descending")
    page.run("document.getElementById('find').focus()")
    page.type("Ment")
    assert column(page, 0) == ["shipments", "payments"], "still in the order that was chosen"
    page.type("x")
    page.text("No topic has that in its name.")


@pytest.mark.chromium
def test_segments_are_listed_with_their_sizes_epochs_and_objects(page: Browser, url: str) -> None:
    page.open(f"{url}/#/orders/0/69995?count=12", "12 records, tier")
    page.run("document.getElementById('segments').open = true")
    page.text("10 segments")
    cells = page.run(
        "[...document.querySelectorAll('#segments-table tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    )
    newest = httpx.get(f"{url}/v1/topics/orders/partitions/0/segments").json()["segments"][-1]
    offsets, state, epochs, records, _, stored, _, object_key = cells[0]
    assert (len(cells), offsets) == (10, f"{newest['offsets']['start']:,} to {newest['offsets']['end']:,}")
    assert (state, epochs, records) == ("copy segment finished", "0", f"{newest['record_count']:,}")
    assert stored.endswith("iB")
    assert object_key == newest["object_key"]
    assert cells[-1][1] == "delete segment started"


@pytest.mark.chromium
def test_on_the_axis_of_offsets_every_bar_of_the_page_has_the_same_scale(page: Browser, url: str) -> None:
    page.open(f"{url}/#/orders", "trimmed")
    choose(page, "offset")
    kept = TOPICS["orders"]
    low = min(kept.base(number, kept.expired) for number in range(6))
    high = max(kept.end(number) for number in range(6))
    for number in range(6):
        drawn = bars(page, number)
        assert [kind for kind, _, _ in drawn] == ["remote", "both", "local"]
        offsets = [kept.base(number, nth) for nth in (kept.expired, kept.trimmed, kept.segments)]
        for (_, left, right), start, end in zip(drawn, offsets, [*offsets[1:], kept.end(number)], strict=True):
            assert left == pytest.approx((start - low) / (high - low), abs=CLOSE)
            assert right == pytest.approx((end - low) / (high - low), abs=CLOSE)


@pytest.mark.chromium
def test_on_the_axis_of_time_what_was_written_at_one_time_lies_at_one_place(page: Browser, url: str) -> None:
    page.open(f"{url}/#/orders", "trimmed")
    choose(page, "time")
    page.text("Jan 1")
    kept = TOPICS["orders"]
    for number in range(6):
        drawn = bars(page, number)
        assert drawn[-1][2] == pytest.approx(1, abs=CLOSE), "all were written to until now"
        began = (kept.base(number, kept.trimmed) - kept.base(number, 1)) / (kept.end(number) - kept.base(number, 1))
        assert drawn[0][2] == pytest.approx(began, abs=0.02)
    ticks = page.run("document.querySelectorAll('#ticks span').length")
    assert 2 <= ticks <= 12


@pytest.mark.chromium
@pytest.mark.parametrize("width", [290, 700])
@pytest.mark.parametrize("span", [30, 480, 4_000, 90_000, 10_000_000, 86_400_000 * 14])
def test_ticks_of_time_are_several_and_each_says_another_time(page: Browser, url: str, span: int, width: int) -> None:
    page.open(f"{url}/#/orders", "trimmed")
    begin = 1_795_655_369_266
    script = f"import('/console/axis.js').then(m => m.axisOf('time', [{begin}, {begin + span}]).ticks({width}))"
    ticks = page.run(script)
    texts = [tick["text"] for tick in ticks]
    assert len(set(texts)) == len(texts)
    assert len(texts) >= (1 if width < 300 else 2)
    assert all(0 <= tick["at"] <= 1 for tick in ticks)


@pytest.mark.chromium
def test_a_gap_is_drawn_between_its_neighbours_and_named(page: Browser, url: str) -> None:
    text = page.open(f"{url}/#/shipments", "gap: offsets 27,900 to 37,199 are in no tier")
    assert text.count("gap: offsets") == 1
    choose(page, "offset")
    assert [kind for kind, _, _ in bars(page, 1)] == ["remote", "gap", "remote", "both", "local"]
    assert [kind for kind, _, _ in bars(page, 0)] == ["remote", "both", "local"]


@pytest.mark.chromium
def test_a_lease_is_drawn_over_what_it_keeps_and_has_its_words(page: Browser, url: str) -> None:
    page.open(f"{url}/#/orders", "trimmed")
    choose(page, "offset")
    labels = page.run("[...document.querySelectorAll('.lease[role=img]')].map(e => e.getAttribute('aria-label'))")
    assert len(labels) == 2
    assert all(re.match(r"leased to spark nightly-report until 20\d\d-.*: [\d,]+ to [\d,]+$", text) for text in labels)


@pytest.mark.chromium
def test_groups_are_on_the_bar_and_words_name_the_one_in_the_remote_tier(page: Browser, url: str) -> None:
    text = page.open(f"{url}/#/orders", "this group stands in the remote tier, on partitions 0 to 5")
    assert text.index("audit remote this group stands in the remote tier") < text.index(
        "checkout local stands at the end"
    )
    choose(page, "offset")
    first = "document.querySelector('.partition')"
    marks = page.run(f"[...{first}.querySelectorAll('.track .mark')].map(e => [e.className, parseFloat(e.style.left)])")
    kept = TOPICS["orders"]
    low, high = min(kept.base(partition, 1) for partition in range(6)), kept.end(0)
    expected = {int(far * kept.end(0)) for far in kept.groups.values()}
    assert sorted(left / 100 for _, left in marks) == pytest.approx(
        sorted((at - low) / (high - low) for at in expected), abs=CLOSE
    )
    far = [left for kind, left in marks if kind == "mark far"]
    assert len(far) == 2, "audit and reports"


@pytest.mark.chromium
def test_each_card_says_of_which_partitions_it_is_and_a_sum_that_it_is_one(page: Browser, url: str) -> None:
    text = page.open(f"{url}/#/orders", "the furthest behind")
    assert re.search(r"partition \d, the furthest behind, stands in the local tier, [\d,]+ offsets behind", text)
    assert "Offsets behind, in sum" in text
    titles = "[...document.querySelectorAll('#topic-more h2')].map(h => h.textContent)"
    assert page.run(titles)[:2] == ["Consumer groups on partitions 0 to 5", "What agents say of partitions 0 to 5"]
    page.open(f"{url}/#/orders/4/@0?count=1", "What happened last on partition 4")
    assert page.run(titles)[:2] == ["Consumer groups on partition 4", "What agents say of partition 4"]
    assert "the furthest behind" not in page.run("document.getElementById('groups-table').innerText")
    legend = page.run("document.querySelector('.legend').innerText")
    assert "gap: in no tier" in legend
    page.open(f"{url}/#/payments", "not copied: order: pause stands partitions 0 to 3, brokers 1, 2, 3")


@pytest.mark.chromium
def test_names_of_groups_never_lie_upon_each_other(page: Browser, url: str) -> None:
    page.open(f"{url}/#/orders", "this group stands in the remote tier")
    script = (
        "[...document.querySelectorAll('.standings')].map(u => [...u.children].map(e => "
        "{const r = e.getBoundingClientRect(); return [r.left, r.right, r.top, r.bottom]}))"
    )
    for boxes in page.run(script):
        assert len(boxes) == 4
        for (left, right, top, bottom), (left2, right2, top2, bottom2) in combinations(boxes, 2):
            assert right <= left2 or right2 <= left or bottom <= top2 or bottom2 <= top


@pytest.mark.chromium
def test_a_broker_that_is_away_is_named_in_place_of_the_groups(page: Browser) -> None:
    class Missing(Shop):
        def groups(self, who: Any, topic: str, partitions: Any) -> TopicGroups:
            return TopicGroups((), (GroupProblem(None, "broker 2 did not answer: its groups are missing"),))

    with console(Missing({"orders": Kept()})) as url:
        text = page.open(f"{url}/#/orders", "broker 2 did not answer: its groups are missing")
    assert "No group that you may see" not in text


class Dark(Shop):
    """A shop without an answering broker; the view is twelve seconds old."""

    def topics(self) -> list[str]:
        raise BrokerUnavailable("no broker answers")

    def topic(self, name: str) -> LogicalTopic:
        raise BrokerUnavailable("no broker answers")

    def bounds(self, topic: str, partition: int) -> LogicalBounds:
        raise BrokerUnavailable("no broker answers")

    def fetch(self, topic: str, partition: int, offset: int, **how: Any) -> Fetched:
        raise BrokerUnavailable("no broker answers")

    def topics_without_brokers(self) -> list[str]:
        return super().topics()

    def tiered_without_brokers(self, topic: str) -> bool:
        return topic in self.kept

    def topic_without_brokers(self, name: str) -> LogicalTopic:
        return super().topic(name)

    def view_without_brokers(self, topic: str, partition: int) -> tuple[PartitionView, float]:
        return self._view.partition(TopicIdPartition(self._id(topic), partition)), 12.0

    def fetch_without_brokers(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, isolation: Isolation
    ) -> Fetched:
        piece = Shop(self.kept).fetch(
            topic, partition, offset, max_bytes=max_bytes, isolation=isolation, tier=Tier.AUTO
        )
        return replace(piece, view_age_s=12.0)


AWAY = "No broker answers: the remote tier is shown as it was 12 s ago."


@pytest.mark.chromium
def test_while_no_broker_answers_the_remote_tier_is_shown_with_its_age(page: Browser) -> None:
    with console(Dark({"orders": TOPICS["orders"], "returns": TOPICS["returns"]})) as url:
        text = page.open(url, "2 topics")
        assert AWAY in text
        assert ("orders" in text, "returns" in text, "unknown" in text) == (True, True, True)
        text = page.open(f"{url}/#/orders", "6 partitions")
        assert AWAY in text
        assert "no broker answers: what only the broker has is unknown" in text
        page.run("document.querySelector('input[name=axis][value=offset]').click()")
        assert [kind for kind, _, _ in bars(page, 0)] == ["remote"]
        text = page.open(f"{url}/#/orders/0/@0?count=3", "3 records")
        assert "3 records, tier: remote" in text
        assert text.count(AWAY) == 2, "of the page, and of its records"
        text = page.open(f"{url}/#/orders/0/@1700000000000?count=3", "no broker answers")
        assert "3 records" not in text, "a time is not guessed"


@pytest.mark.chromium
@pytest.mark.parametrize("partition", [0, 4])
def test_the_page_of_a_partition_shows_its_own_bytes(page: Browser, url: str, partition: int) -> None:
    view = httpx.get(f"{url}/v1/topics/orders/partitions", params={"partition": partition}).json()["partitions"][0]
    whole = httpx.get(f"{url}/v1/topics/orders/summary").json()
    agent_status = httpx.get(f"{url}/v1/topics/orders/partitions/{partition}/agent").json()["status"]
    page.open(f"{url}/#/orders/{partition}/@0?count=1", f"orders: partition {partition}")
    own, local, topics = page.run(
        f"import('/console/dom.js').then(({{ bytes }}) => "
        f"[{view['remote_bytes']}, {agent_status['local_log_bytes']}, {whole['remote_bytes']}].map(bytes))"
    )
    eventually(lambda: "local" in page.run("document.getElementById('topic-sizes').textContent"))
    sizes = page.run("document.getElementById('topic-sizes').textContent")
    assert f"{own} remote · {local} local" in sizes
    assert f"{topics} remote" not in sizes


@pytest.mark.chromium
def test_a_name_that_a_stranger_chose_moves_and_hides_nothing(page: Browser) -> None:
    name = "gro\u202epuorg\u2066\x1b"
    with console(Shop({"orders": Kept(groups={name: 0.5})})) as url:
        text = page.open(f"{url}/#/orders", r"gro\u202epuorg\u2066\u001b")
        assert not set(text) & HIDDEN
        page.open(f"{url}/#/gro%E2%80%AEpuorg", "not a topic name")
        assert r"gro\u202epuorg" in page.text("not a topic name")
        assert r"gro\u202epuorg" in page.run("document.title")
        script = "Array.from({ length: 0x10000 }, (_, each) => each).filter(each => {1})".replace(
            "{1}", "dom.visible(String.fromCharCode(each)) !== String.fromCharCode(each)"
        )
        hidden = page.run(f"import('/console/dom.js').then(dom => {script})")
        assert [chr(code) for code in hidden] == sorted(HIDDEN - {"\t", "\n"}), "as the command line has it"


@pytest.mark.chromium
def test_events_are_a_timeline_with_the_newest_first(page: Browser, url: str) -> None:
    text = page.open(f"{url}/#/orders", "trimmed: the broker's log below 50,400")
    assert text.index("trimmed: the broker's log below") < text.index("expired 0..9,999: retention time")
    shown = "document.querySelectorAll('#facts li').length"
    assert page.run(shown) == 12
    page.run("document.getElementById('all-facts').click()")
    assert page.run(shown) == 50
    times = page.run("[...document.querySelectorAll('#facts time')].map(e => e.dateTime)")
    assert times == sorted(times, reverse=True)


@pytest.mark.chromium
def test_retention_and_orders_are_shown(page: Browser, url: str) -> None:
    text = page.open(f"{url}/#/payments", "Local tier 1 d")
    assert "Both tiers 30 d" in text
    assert "Orders pause since 2025-12-30T00:00:00Z by ann@desk" in text


@pytest.mark.chromium
def test_equal_messages_of_many_partitions_are_shown_once(page: Browser, url: str) -> None:
    text = page.open(f"{url}/#/payments", "not copied: order: pause stands partitions 0 to 3")
    assert text.count("not copied") == 1
    assert "order: pause since" in page.run("document.getElementById('topic-trouble').textContent")
    assert page.run("document.querySelectorAll('.partition .trouble').length") == 0


@pytest.mark.chromium
def test_the_page_asks_for_twelve_of_five_thousand_partitions(page: Browser, url: str) -> None:
    page.open(f"{url}/#/clickstream", "0 to 11 of 5,000")
    page.text("trimmed")
    urls = page.run("performance.getEntriesByType('resource').map(e => e.name).filter(n => n.includes('/v1/'))")
    assert not [url for url in urls if url.endswith("/v1/topics/clickstream")], "all of them, in one answer"
    partitions = {int(number) for path in urls for number in re.findall(r"partition(?:=|s/)(\d+)", path)}
    assert partitions == set(range(12))


@pytest.mark.chromium
def test_the_partitions_in_trouble_can_be_shown_alone(page: Browser, url: str, shop_reader: Shop) -> None:
    page.open(f"{url}/#/shipments", "gap: offsets")
    page.text("gap (1 partition)")  # the agents report it, a refresh later
    page.run("document.getElementById('in-trouble').click()")
    page.text("1 of 3")
    assert page.run("document.querySelectorAll('.partition').length") == 1


@pytest.mark.chromium
def test_nothing_of_one_topic_stays_on_the_page_of_another(page: Browser, url: str) -> None:
    page.open(f"{url}/#/orders", "this group stands in the remote tier")
    page.run("location.hash = '#/nobody'")
    text = page.text("no such topic")
    assert "audit" not in text
    assert "partition 5" not in text
    assert page.run("document.querySelectorAll('.partition').length") == 0


@pytest.mark.chromium
def test_the_axis_is_chosen_by_keyboard_and_remembered(page: Browser, url: str) -> None:
    page.open(f"{url}/#/orders", "trimmed")
    choose(page, "time")
    page.run("document.querySelector('input[name=axis]:checked').focus()")
    page.press("ArrowRight")
    page.text("offset")
    assert page.run("document.getElementById('axis-said').textContent") == "offset"
    page.open(f"{url}/#/orders", "trimmed")
    assert page.run("document.getElementById('axis-said').textContent") == "offset"
    choose(page, "time")


@pytest.mark.chromium
@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("address", ["", "#/orders", "#/clickstream", "#/shipments/1/30000?count=3"])
def test_nothing_of_a_real_topic_is_off_the_screen(page: Browser, url: str, address: str, width: int) -> None:
    page.width(width)
    page.open(f"{url}/{address}", "What happened last" if address else "6 topics")
    page.run("for (const each of document.querySelectorAll('details')) each.open = true")
    page.text("tierstate")
    assert page.run("document.documentElement.scrollWidth") <= width
    page.width(1280)
