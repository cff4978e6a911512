"""ListOffsets by each of its names, and epochs, compared with the broker: for a tiered topic, and for a plain one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from tests.consumer.tiered_cluster import TieredCluster, until
from tests.proxy.running import RunningProxy, running
from tierstate.broker.answers import FetchSpec
from tierstate.broker.raw import RawClient
from tierstate.proxy.older_offsets import EARLIEST, EARLIEST_LOCAL, LAST_TIERED, LATEST, MAX_TIMESTAMP
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.routing import Isolation

pytestmark = pytest.mark.kafka
RECORDS = 400
BROKER = BrokerId(1)
NAMES = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max timestamp": MAX_TIMESTAMP,
    "earliest local": EARLIEST_LOCAL,
    "last tiered": LAST_TIERED,
    "a time": 1_000_100,
}
OUT_OF_RANGE = 1


class Both:
    """Send the same requests through the proxy and to the broker."""

    def __init__(self, cluster: TieredCluster, proxy: RunningProxy, through: RawClient, direct: RawClient) -> None:
        self.cluster, self.proxy, self.through, self.direct = cluster, proxy, through, direct

    def agree_about(self, spec: FetchSpec) -> int:
        """Return the error code of both; the proxy answers "nothing yet" until it has looked into the remote tier."""
        direct = self.direct.fetch(BROKER, spec)
        until(lambda: self.through.fetch(BROKER, spec) == direct, lambda: None)
        return direct.code

    @staticmethod
    def offsets(client: RawClient, topic: str) -> dict[str, int]:
        offsets_found = {}
        for name, timestamp in NAMES.items():
            answer = client.list_offset(BROKER, topic, 0, TimestampMs(timestamp))
            assert answer.code == 0, (name, answer)
            offsets_found[name] = int(answer.offset)
        return offsets_found


@pytest.fixture(scope="module")
def both(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    cluster = TieredCluster(kafka, tmp_path_factory.mktemp("by-name"), "_tier-state-by-name")
    with ExitStack() as opened:
        proxy = opened.enter_context(running(cluster))
        through, direct = (
            opened.enter_context(closing(RawClient({"bootstrap.servers": where}, SystemClock())))
            for where in (proxy.bootstrap, kafka.bootstrap)
        )
        yield Both(cluster, proxy, through, direct)


def test_the_brokers_own_names_stay_and_the_others_cover_both_tiers(both: Both) -> None:
    topic = both.cluster.topic("orders", RECORDS)
    whole = both.offsets(both.direct, topic)
    assert whole == {
        "latest": RECORDS,
        "earliest": 0,
        "max timestamp": RECORDS - 1,
        "earliest local": 0,
        "last tiered": -1,
        "a time": 100,
    }
    (start,) = both.cluster.copy_and_trim(topic)
    last = both.proxy.reader.bounds(topic, 0).highest_remote
    assert start - 1 <= last < RECORDS
    assert both.offsets(both.through, topic) == whole | {"earliest local": start, "last tiered": last}
    trimmed = {"earliest": start, "earliest local": start, "a time": start}
    # a broker finds no time while files below its log start, which are deleted later, have a later one
    until(lambda: both.offsets(both.direct, topic)["a time"] == start, lambda: None)
    assert both.offsets(both.direct, topic) == whole | trimmed


def test_a_remote_offset_has_the_epoch_that_the_broker_gave_it(both: Both) -> None:
    topic = both.cluster.topic("with-epochs", RECORDS)
    times = [TimestampMs(NAMES[name]) for name in ("earliest", "max timestamp", "a time")]
    before = [both.direct.list_offset(BROKER, topic, 0, each) for each in times]
    both.cluster.copy_and_trim(topic)
    assert [both.through.list_offset(BROKER, topic, 0, each) for each in times] == before
    assert {each.leader_epoch for each in before} == {0}


def test_an_epoch_that_ended_below_the_local_tier_ends_where_it_did(both: Both) -> None:
    topic = both.cluster.topic("epochs", RECORDS)
    before = both.direct.end_of_epoch(BROKER, topic, 0, LeaderEpoch(0))
    both.cluster.copy_and_trim(topic)
    assert both.through.end_of_epoch(BROKER, topic, 0, LeaderEpoch(0)) == before
    assert (before.code, before.offset) == (0, RECORDS)
    unknown = LeaderEpoch(99)
    assert both.through.end_of_epoch(BROKER, topic, 0, unknown) == both.direct.end_of_epoch(BROKER, topic, 0, unknown)


def test_a_topic_that_is_not_tiered_is_as_at_the_broker_also_where_it_was_cut(both: Both) -> None:
    topic = "nobody-tiers-this"
    both.cluster.admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"})])[topic].result(30)
    both.cluster.produce(topic, 0, RECORDS)
    place = TopicPartition(topic, 0, 150)
    both.cluster.admin.delete_records([place])[place].result(30)
    direct = both.offsets(both.direct, topic)
    assert direct["earliest"] == 150
    assert both.offsets(both.through, topic) == direct
    for offset, code in ((0, OUT_OF_RANGE), (150, 0), (RECORDS, 0), (RECORDS + 1, OUT_OF_RANGE)):
        spec = FetchSpec(topic, 0, Offset(offset), 1 << 20, Isolation.READ_UNCOMMITTED, wait_ms=100)
        assert both.agree_about(spec) == code, offset
