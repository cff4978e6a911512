"""The logical view over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.api.conftest import Log
from tests.api.gateways import RECORDS, Call, MemoryReader, asgi_call
from tests.api.many_topics import ManyTopics
from tierstate.api.app import create_app
from tierstate.api.service import FetchService
from tierstate.app.looking.partition_facts import facts_by_gateway
from tierstate.fetch.piece import LogicalBounds
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.schemas.codec import descriptor_from_json
from tierstate.state.errors import BrokerUnavailable
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.segment import RemoteSegment

PARTITION = "/v1/topics/t/partitions/0"


def test_topics_are_listed_with_the_size_of_their_remote_tier(call: Call) -> None:
    (topic,) = call("/v1/topics").json()["topics"]
    assert (topic["topic"], topic["partitions"], topic["remote_segments"]) == ("t", 1, 4)
    assert topic["remote_bytes"] > 0


@pytest.mark.parametrize(
    "path", ["", "/partitions/0", "/partitions/0/records?offset=0", "/summary", "/facts", "/groups"]
)
def test_only_what_the_settings_name_is_served_also_where_it_is_not_tiered(path: str) -> None:
    class Untiered(MemoryReader):
        def topics(self) -> list[str]:
            return []

    for reader, topics, served in (
        (MemoryReader(), ("t",), True),
        (MemoryReader(), ("other", "t."), False),
        (Untiered(), (".",), True),
        (Untiered(), (), False),
    ):
        ask = asgi_call(create_app(FetchService(reader, Gateway(topics=topics), SystemClock())))
        assert ask(f"/v1/topics/t{path}").status_code == (200 if served else 404), topics
        assert ("t" in {topic["topic"] for topic in ask("/v1/topics").json()["topics"]}) <= served


def test_a_partition_with_lost_facts_shows_the_command_that_adds_them_and_none_that_deletes() -> None:
    service = FetchService(ManyTopics({"t": 1}, agents={"t": "agent:1"}), Gateway(topics=("t",)), SystemClock())
    lost = "facts are lost: tierstate recover t:0"
    service.boards.known = lambda: {"agent:1": {("t", 0): {"facts_lost": lost}}}  # type: ignore[method-assign]
    answer = asgi_call(create_app(service))(PARTITION).json()
    assert (answer["facts_lost"], answer["cut_elsewhere"]) == (lost, None)


def test_only_a_log_that_is_no_archive_shows_what_the_broker_cut(log: Log) -> None:
    """Kafka's retention cuts the log of an archive all the time, and no person is to extend that to the archive."""
    log.local.local_start = log.folder.bases[-1]
    service = FetchService(log.reader, Gateway(), SystemClock())
    call, leader = asgi_call(create_app(service)), log.reader.view("t", 0).leader
    assert leader is not None
    shown = []
    for reason in ("trim-delay", "trim-disabled"):
        board = {("t", 0): {"not_trimmed_reason": reason}}
        service.boards.known = lambda board=board: {leader.management_address: board}  # type: ignore[method-assign, misc]
        shown.append(call(PARTITION).json()["cut_elsewhere"])
        assert call("/v1/topics/t").json()["partitions"][0]["cut_elsewhere"] == shown[-1]
    assert shown[0].startswith(f"the broker begins at {log.folder.bases[-1]}")
    assert shown[1] is None
    service.boards.known = dict  # type: ignore[method-assign]
    listed = call("/v1/topics/t").json()["partitions"]
    assert listed[0]["cut_elsewhere"] == shown[0], "the gateway has not asked the agent yet"
    for reason in ("trim-delay", "trim-disabled"):
        answer = {"silent": False, "broker_id": 1, "address": "HOST:1", "status": {"not_trimmed_reason": reason}}
        client: Any = SimpleNamespace(describe=lambda topic: listed, agent=lambda *place, answer=answer: answer)
        [facts] = facts_by_gateway(client, "t", None, "HOST:PORT")
        assert facts.cut_elsewhere == (None if reason == "trim-disabled" else shown[0])
    service.close()


def test_a_partition_shows_both_tiers(call: Call, log: Log) -> None:
    answer = call(PARTITION).json()
    local, end = log.folder.bases[-1], log.folder.end()
    assert (answer["log_start_offset"], answer["local_log_start_offset"], answer["high_watermark"]) == (0, local, end)
    assert (answer["highest_remote_offset"], answer["copied_to"], answer["local_only_records"]) == (
        local - 1,
        local - 1,
        end - local,
    )
    assert (answer["overlap"], answer["gaps"], answer["unavailable"]) == (None, [], None)
    assert call("/v1/topics/t").json()["partitions"] == [answer]


def test_offsets_that_both_tiers_have_are_the_overlap(call: Call, log: Log) -> None:
    log.local.local_start = log.folder.bases[2]
    assert call(PARTITION).json()["overlap"] == {"start": log.folder.bases[2], "end": log.folder.bases[-1] - 1}


def test_offsets_that_no_tier_has_are_gaps_and_reading_them_names_them(golden: Callable[..., Log]) -> None:
    log = golden(copies=1)
    log.local.local_start = log.folder.bases[-1]
    service = FetchService(log.reader, Gateway(), SystemClock())
    call = asgi_call(create_app(service))
    gap = {"start": log.folder.bases[1], "end": log.folder.bases[-1] - 1}
    assert call(PARTITION).json()["gaps"] == [gap]
    answer = call(f"{PARTITION}/records", offset=gap["start"] + 1)
    assert answer.status_code == 500
    problem = answer.json()
    assert (problem["error"], problem["start"], problem["end"]) == ("LogGap", gap["start"] + 1, gap["end"])
    service.close()


def test_segments_have_the_form_of_their_manifest(call: Call) -> None:
    segments = call(f"{PARTITION}/segments").json()["segments"]
    assert [row["state"] for row in segments] == ["COPY_SEGMENT_FINISHED"] * 4
    assert [row["offsets"]["start"] for row in segments] == sorted(row["offsets"]["start"] for row in segments)
    first = {name: value for name, value in segments[0].items() if name != "state"}
    assert isinstance(descriptor_from_json(first, source="answer"), RemoteSegment)


def test_a_time_is_found_or_null(call: Call) -> None:
    assert call(f"{PARTITION}/offsets", timestamp=0).json()["offset"] == 0
    assert call(f"{PARTITION}/offsets", timestamp=2**60).json()["offset"] is None


def test_a_partition_without_a_leader_does_not_hide_its_topic() -> None:
    class Moving(MemoryReader):
        def bounds(self, topic: str, partition: int) -> LogicalBounds:
            raise BrokerUnavailable("leadership is moving", broker="10.0.0.1:9092")

    service = FetchService(Moving(), Gateway(), SystemClock())
    call = asgi_call(create_app(service))
    (partition,) = call("/v1/topics/t").json()["partitions"]
    assert (partition["high_watermark"], partition["unavailable"]) == (None, "leadership is moving")
    answer = call(PARTITION)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "10.0.0.1" not in answer.text
    service.close()


def test_an_unknown_log_start_is_not_reported(log: Log) -> None:
    """The leader was elected uncleanly below it, and its agent is down. The broker's records are read all the same."""
    log.tiers.start_log_at(890)
    log.tiers.view.require_fresh(0, 0)
    log.local.local_start = 0
    log.local.elect(7, end=500)
    service = FetchService(log.reader, Gateway(), SystemClock())
    call = asgi_call(create_app(service))
    assert call(PARTITION).json()["error"] == "LineageUnconfirmed"
    (shown,) = call("/v1/topics/t").json()["partitions"]
    assert "has no term yet" in shown["unavailable"]
    answer = call(RECORDS, offset=100)
    assert (answer.status_code, answer.headers["x-tier"]) == (200, "local")
    assert "x-log-start-offset" not in answer.headers
    service.close()


def test_topic_ids_are_kafkas(call: Call) -> None:
    answer = call(PARTITION).json()
    TopicIdPartition(TopicId(answer["topic_id"]), answer["partition"])
