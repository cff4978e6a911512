"""The table of all topics: what agents say is added to the view, and a silent one is never taken for a healthy one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.json_server import JsonServer, json_server
from tests.api.many_topics import ManyTopics
from tests.api.shop import Kept, Shop
from tests.twins.manual_clock import ManualClock
from tierstate.app.looking.overview import TopicOverview, addresses_of, overview, worst_first
from tierstate.app.looking.partition_facts import ask_agent
from tierstate.app.opening.agent_boards import AgentBoards
from tierstate.state.ids import TopicIdPartition
from tierstate.state.partition_view import PartitionView

AT = "agent:1"


def views(topic: str = "orders", partitions: int = 2, **more: Any) -> list[PartitionView]:
    reader = ManyTopics({topic: partitions}, agents={topic: AT}, **more)
    return [reader.view(topic, number) for number in range(partitions)]


def status(partition: int, **more: Any) -> dict[str, Any]:
    said = {"copy_lag_segments": 0, "copy_lag_bytes": 0, "copy_lag_s": None, "consecutive_failures": 0}
    return {"topic": "orders", "partition": partition, "leads": True} | said | more


def board(*said: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(each["topic"], each["partition"]): each for each in said}


def test_lag_is_the_sum_of_what_agents_say_and_the_longest_wait() -> None:
    waiting = status(1, copy_lag_segments=2, copy_lag_bytes=50, copy_lag_s=9.0)
    found = overview("orders", views(), {AT: board(status(0, copy_lag_bytes=7, copy_lag_segments=1), waiting)})
    assert (found.copy_lag_segments, found.copy_lag_bytes, found.copy_lag_seconds) == (3, 57, 9.0)
    assert (found.partitions, found.trouble) == (2, ())


def test_what_no_agent_has_said_is_unknown_and_not_nothing() -> None:
    for boards in ({}, {AT: None}, {AT: board()}):
        found = overview("orders", views(), boards)
        assert (found.copy_lag_bytes, found.copy_lag_seconds, found.freed_bytes) == (None, None, None)


def test_a_silent_agent_and_one_that_fails_are_trouble() -> None:
    assert addresses_of(views()) == {AT}
    silent = overview("orders", views(), {AT: None})
    assert (silent.trouble, silent.partitions_in_trouble) == (("agent silent",), 2)
    failing = overview("orders", views(), {AT: board(status(0, consecutive_failures=3), status(1))})
    assert (failing.trouble, failing.partitions_in_trouble) == (("agent fails",), 1)


@pytest.mark.parametrize(("local_start", "trouble"), [(37_200, ("gap",)), (27_900, ())])
def test_offsets_that_neither_the_broker_nor_a_segment_has_are_trouble(
    local_start: int, trouble: tuple[str, ...]
) -> None:
    kept = Shop({"shipments": Kept(partitions=3, gap=3)}, AT)  # 27,900 to 37,199 of partition 1 were never copied
    found = [kept.view("shipments", number) for number in range(3)]
    said = {"topic": "shipments", "partition": 1, "leads": True, "local_log_start_offset": local_start}
    seen = overview("shipments", found, {AT: board(said)})
    assert (seen.trouble, seen.in_trouble) == (trouble, (1,) if trouble else ())


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        ({"missing_objects": 3}, "objects missing"),
        ({"not_expired_reason": "prefix-contested"}, "prefix contested"),
        ({"not_expired_reason": "store-moves"}, "store moves"),
        ({"store_away": "the store does not answer"}, "store away"),
    ],
)
def test_what_the_bucket_lacks_and_who_else_writes_there_is_trouble(said: dict[str, Any], trouble: str) -> None:
    seen = overview("orders", views(), {AT: board(status(0), status(1, **said))})
    assert (seen.trouble, seen.in_trouble) == ((trouble,), (1,))


def test_lost_facts_are_trouble_also_where_no_offset_is_in_no_tier() -> None:
    seen = overview("orders", views(), {AT: board(status(0), status(1, facts_lost="tierstate recover orders:1"))})
    assert (seen.trouble, seen.in_trouble) == (("facts lost",), (1,))


def test_a_partition_whose_facts_are_lost_is_not_said_to_be_never_copied() -> None:
    place = views()[0].partition
    seen = overview("orders", [PartitionView(place)], {}, lost=[place], never=[place])
    assert seen.trouble == ("facts lost",)


def test_a_partition_that_no_agent_ever_led_is_never_copied_and_the_right_that_lacks_is_named() -> None:
    never = [PartitionView(TopicIdPartition(view.partition.topic_id, 7)) for view in views(partitions=1)]
    seen = overview("orders", never, {}, never=[each.partition for each in never])
    assert (seen.trouble, seen.in_trouble, seen.rights_lacking) == (("never copied",), (7,), ())
    told = "DESCRIBE_CONFIGS on orders: retention is obeyed; an administrator adds it: kafka-acls.sh"
    known = board(status(7, consecutive_failures=3, rights_lacking=[told], copy_lag_segments=None))
    seen = overview("orders", never, {"another:1": None, AT: known}, never=[each.partition for each in never])
    assert seen.trouble == ("agent fails", "never copied", "right lacks")
    assert seen.rights_lacking == (told,)


def test_sizes_of_the_local_tier_are_what_agents_say() -> None:
    known = board(status(0, local_log_bytes=7), status(1, local_log_bytes=5))
    assert overview("orders", views(), {AT: known}).local_log_bytes == 12
    assert overview("orders", views(), {AT: None}).local_log_bytes is None


def test_the_worst_stands_first() -> None:
    def row(topic: str, trouble: int = 0, orders: tuple[str, ...] = (), waits: int | None = 0) -> TopicOverview:
        return TopicOverview(topic, "", 1, 0, 0, 0, 0, 0, 0, waits, 0.0, orders, (), trouble)

    rows = [row("b"), row("a", waits=None), row("late", waits=9), row("paused", orders=("pause",)), row("ill", 1)]
    assert [each.topic for each in worst_first(rows)] == ["ill", "paused", "late", "a", "b"]


@pytest.fixture
def answering() -> Iterator[JsonServer]:
    with json_server({"/v1/status": {"partitions": [status(0), status(1, leads=False)]}}) as server:
        yield server


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def boards(clock: ManualClock) -> Iterator[AgentBoards]:
    made = AgentBoards(clock)
    yield made
    made.close()


def test_only_what_a_broker_leads_counts_and_who_is_silent_has_no_board(
    boards: AgentBoards, answering: JsonServer, silent: str
) -> None:
    found = boards.now([answering.address, silent])
    assert found[silent] is None
    assert list(found[answering.address] or {}) == [("orders", 0)]


def test_nobody_waits_for_an_agent_whose_answer_is_not_needed_now(
    boards: AgentBoards, clock: ManualClock, answering: JsonServer, silent: str
) -> None:
    boards.renew([answering.address, silent])
    assert silent not in boards.known(), "asked behind the caller's back"
    boards.now([answering.address])
    asked = answering.asked
    for _ in range(5):
        boards.renew([answering.address])
        assert boards.known()[answering.address] is not None
    assert answering.asked == asked, "an answer is good for a while"
    clock.advance(11)
    boards.renew([answering.address])
    boards.close()
    boards._pool.shutdown(wait=True)
    assert answering.asked <= asked + 1


def test_only_agents_of_the_hosts_that_are_named_are_asked(clock: ManualClock) -> None:
    """Writers of the tier-state topic choose the addresses, and the gateway may reach hosts that they cannot."""
    with json_server({"/v1/status": {"partitions": [status(0)]}, "/v1/status/orders/0": status(0)}) as server:
        view = ManyTopics({"orders": 1}, agents={"orders": server.address}).view("orders", 0)
        for hosts, silent in (((), False), (("127.0.0.1",), False), (("kafka-1",), True)):
            before, boards = server.asked, AgentBoards(clock, hosts)
            assert (boards.now([server.address])[server.address] is None) == silent
            assert isinstance(ask_agent(view, "orders", hosts), str) == silent
            assert (server.asked == before) == silent
            boards.close()
