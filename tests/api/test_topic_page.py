"""A topic's page asks for more than its partitions: times, facts, the topic's own row of the overview."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.api.conftest import Log
from tests.api.gateways import Call, MemoryReader, asgi_call
from tests.api.many_topics import ManyTopics
from tests.twins.manual_clock import ManualClock
from tierstate.api.app import create_app
from tierstate.api.service import FetchService
from tierstate.api.topic_page import MOST_PAIRS, thinned
from tierstate.fetch.piece import LogicalBounds
from tierstate.runtime.gateway_settings import Gateway
from tierstate.state.errors import BrokerUnavailable
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.partition_view import PartitionView

TOPIC = "/v1/topics/t"


def call_of(reader: MemoryReader) -> Call:
    return asgi_call(create_app(FetchService(reader, Gateway(), ManualClock())))


def test_the_times_of_a_partition_begin_and_end_with_its_log_and_never_go_back(call: Call, log: Log) -> None:
    (partition,) = call(f"{TOPIC}/times").json()["partitions"]
    offsets, times = ([row[name] for row in partition["times"]] for name in ("offset", "timestamp"))
    assert (offsets[0], offsets[-1]) == (0, log.folder.end() - 1)
    assert offsets == sorted(set(offsets))
    assert times == sorted(times)
    assert partition["unavailable"] is None
    ends = [base - 1 for base in log.folder.bases[1:]]
    assert set(ends) <= set(offsets), "where each copied segment ends"


def test_records_that_go_back_in_time_do_not_take_the_axis_with_them() -> None:
    reader = MemoryReader()
    for at in (5000, 9000, 2000):
        reader.append(None, b"x", at)
    reader.local_start = 1
    (partition,) = call_of(reader)(f"{TOPIC}/times").json()["partitions"]
    assert [(row["offset"], row["timestamp"]) for row in partition["times"]] == [(0, 5000), (1, 9001), (2, 9001)]


def test_times_are_few_however_many_segments_there_are() -> None:
    pairs = [(Offset(number), TimestampMs(number)) for number in range(10_000)]
    times = thinned(pairs)
    assert (len(times), times[0], times[-1]) == (MOST_PAIRS, pairs[0], pairs[-1])


def test_the_views_times_are_shown_while_the_broker_is_away(golden: Callable[..., Log]) -> None:
    log = golden()

    class Away(MemoryReader):
        def view(self, topic: str, partition: int) -> PartitionView:
            return log.reader.view(topic, partition)

        def bounds(self, topic: str, partition: int) -> LogicalBounds:
            raise BrokerUnavailable("it is away", broker="10.0.0.1:9092")

    call = call_of(Away())
    (row,) = call(f"{TOPIC}/times").json()["partitions"]
    assert row["unavailable"] == "it is away"
    assert len(row["times"]) == 4


def test_facts_are_shown_in_words_with_the_newest_first(call: Call, log: Log) -> None:
    facts = call(f"{TOPIC}/facts").json()["facts"]
    copied = [fact for fact in facts if fact["fact"] == "SegmentCopyFinished"]
    assert len(copied) == 4
    assert copied[-1]["said"].startswith(f"copied 0..{log.folder.bases[1] - 1:,}: ")
    assert copied[-1]["offsets"] == {"start": 0, "end": log.folder.bases[1] - 1}
    assert "broker 1 leads, epoch 0" in facts[-1]["said"]
    assert [fact["at"] for fact in facts] == sorted((fact["at"] for fact in facts), reverse=True)
    assert call(f"{TOPIC}/facts", count=2).json()["facts"] == facts[:2]


def test_a_topics_own_row_is_the_one_of_the_table(call: Call) -> None:
    assert call(f"{TOPIC}/summary").json() == call("/v1/topics").json()["topics"][0]


def test_the_partitions_in_trouble_are_named() -> None:
    call = call_of(ManyTopics({"ill": 2, "well": 3}, in_trouble="ill"))
    assert call("/v1/topics/ill/summary").json()["in_trouble"] == [1]
    assert call("/v1/topics/well/summary").json()["in_trouble"] == []


def test_topics_are_answered_worst_first() -> None:
    call = call_of(ManyTopics({"a": 1, "ill": 2, "paused": 1}, "paused", "ill"))
    assert [topic["topic"] for topic in call("/v1/topics").json()["topics"]] == ["ill", "paused", "a"]


@pytest.mark.parametrize("what", ["times", "facts", "groups"])
def test_a_call_on_a_large_topic_must_name_partitions(what: str) -> None:
    call = call_of(ManyTopics({"large": 65, "small": 64}))
    assert call(f"/v1/topics/small/{what}").status_code == 200
    refused = call(f"/v1/topics/large/{what}")
    assert refused.status_code == 400
    assert "one answer has 64 at most" in refused.json()["message"]
    assert call(f"/v1/topics/large/{what}?partition=3&partition=64").status_code == 200
    assert call(f"/v1/topics/large/{what}?partition=65").status_code == 404
    unknown = call(f"/v1/topics/large/{what}?partitions=3")
    assert "did you mean partition?" in unknown.json()["message"]


def test_partitions_that_are_named_are_answered_alone_and_no_other_is_asked() -> None:
    reader = ManyTopics({"large": 5000})
    rows = call_of(reader)("/v1/topics/large/partitions?partition=77&partition=3&partition=77").json()["partitions"]
    assert [row["partition"] for row in rows] == [3, 77]
    assert reader.looks == 2
