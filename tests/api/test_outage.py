"""While no broker answers, what a view knows of topics is shown with its age, and nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.api.conftest import Log
from tests.api.gateways import Call, asgi_call
from tests.twins.manual_clock import ManualClock
from tierstate.api.app import create_app
from tierstate.api.service import SILENT_S, FetchService
from tierstate.broker.error_codes import LeaderMoved
from tierstate.broker.topics import TopicDescription
from tierstate.runtime.gateway_settings import Gateway
from tierstate.state.errors import BrokerUnavailable, TierstateError, UnknownTopic
from tierstate.state.ids import TopicId, TopicIdPartition

TOPIC = "/v1/topics/t"
PAGE = ["/v1/topics", TOPIC] + [
    f"{TOPIC}/{name}" for name in ("summary", "partitions?partition=0", "times", "facts", "partitions/0/segments")
]


class Brokers:
    """The brokers of a reader; every call raises ``error``, unless it is None."""

    def __init__(self, log: Log) -> None:
        reader: Any = log.reader
        self._before, self.error, self.asked = reader._control, BrokerUnavailable("no answer"), 0
        reader._control = self

    error: TierstateError | None

    def topics(self) -> tuple[TopicDescription, ...]:
        return tuple(self._answered(self._before.topics))

    def topic(self, name: str) -> TopicDescription:
        topic: TopicDescription = self._answered(lambda: self._before.topic(name))
        return topic

    def _answered(self, answer: Callable[[], Any]) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return answer()


@pytest.fixture
def brokers(log: Log) -> Brokers:
    return Brokers(log)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def call(log: Log, brokers: Brokers, clock: ManualClock) -> Iterator[Call]:
    service = FetchService(log.reader, Gateway(), clock, hidden=("_tier-state",))
    yield asgi_call(create_app(service))
    service.close()


def test_the_overview_and_a_topics_page_show_the_remote_tier_with_the_age_of_the_view(
    call: Call, brokers: Brokers
) -> None:
    for path in PAGE:
        answer = call(path)
        assert answer.status_code == 200, (path, answer.text)
        assert 0 <= float(answer.headers["x-view-age"]) < 300, path
    topics = call("/v1/topics").json()["topics"]
    assert [topic["topic"] for topic in topics] == ["t"]
    partition = call(f"{TOPIC}/partitions").json()["partitions"][0]
    assert topics[0]["remote_segments"] == partition["remote_segments"] > 0
    assert (partition["high_watermark"], partition["local_log_start_offset"]) == (None, None)
    assert "no broker answers" in partition["unavailable"]
    assert partition["log_start_offset"] == 0
    assert call(f"{TOPIC}/facts").json()["facts"]
    assert call(f"{TOPIC}/times").json()["partitions"][0]["times"]
    assert brokers.asked == 1, "who did not answer is not waited for at each call"


@pytest.mark.parametrize("path", ["partitions/0", "partitions/0/offsets?timestamp=0", "groups"])
def test_what_only_a_broker_knows_is_not_guessed(call: Call, path: str) -> None:
    assert call("/v1/topics").status_code == 200
    answer = call(f"{TOPIC}/{path}")
    assert (answer.status_code, answer.json()["error"]) == (503, "BrokerUnavailable")


def test_a_topic_that_the_view_lacks_is_not_called_missing(call: Call) -> None:
    assert call("/v1/topics/other").status_code == 503


@pytest.mark.parametrize(
    "path", ["u", "u/summary", "t/partitions?partition=7", "t/partitions/7/segments", "t/facts?partition=7"]
)
def test_a_topic_or_partition_that_the_view_lacks_may_exist(
    log: Log, brokers: Brokers, clock: ManualClock, path: str
) -> None:
    service = FetchService(log.reader, Gateway(topics=("t", "u")), clock)
    call = asgi_call(create_app(service))
    assert call(f"/v1/topics/{path}").status_code == 503
    brokers.error = None
    clock.advance(SILENT_S)
    assert call(f"/v1/topics/{path}").status_code == 404
    service.close()


def test_brokers_are_asked_again_after_seconds(call: Call, brokers: Brokers, clock: ManualClock) -> None:
    assert "x-view-age" in call(TOPIC).headers
    brokers.error = None
    assert "x-view-age" in call(TOPIC).headers
    clock.advance(SILENT_S)
    assert "x-view-age" not in call(TOPIC).headers
    assert call(f"{TOPIC}/partitions/0").status_code == 200


def test_a_topic_whose_leader_moves_is_no_outage(call: Call, brokers: Brokers, log: Log) -> None:
    brokers.error = None
    assert call(TOPIC).status_code == 200
    brokers.error = LeaderMoved("not yet")
    log.reader._topics.clear()
    assert call(TOPIC).status_code == 503
    brokers.error = None
    assert "x-view-age" not in call("/v1/topics").headers


def test_a_name_that_two_topics_had_is_not_guessed(log: Log, brokers: Brokers) -> None:
    other = TopicIdPartition(TopicId.of(b"another-topicid!"), 0)
    log.tiers.partition = other
    log.tiers.copy_all(log.folder)
    assert log.reader.topics_without_brokers() == []
    with pytest.raises(UnknownTopic):
        log.reader.view_without_brokers("t", 0)
