"""A service whose fences do not fence is refused by name before anything is copied from it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tierstate.broker.answers import FetchSpec, RawFetch
from tierstate.broker.open import open_broker
from tierstate.broker.raw import RawClient
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import InvalidRequest
from tierstate.state.ids import BrokerId
from tierstate.tail.probe import probe_leaders

pytestmark = pytest.mark.kafka


class Unfenced(RawClient):
    """Asks a real broker without what it would fence by, as if the service looked at neither."""

    leaves_out = ""

    def fetch(self, broker: BrokerId, spec: FetchSpec) -> RawFetch:
        without: dict[str, Any] = {self.leaves_out: None} if self.leaves_out else {}
        return super().fetch(broker, replace(spec, **without))


@pytest.mark.parametrize(
    ("leaves_out", "what"), [("leader_epoch", "wrong leader epoch"), ("topic_id", "wrong topic id"), ("", "")]
)
def test_a_leader_that_answers_a_wrong_epoch_or_id_with_data_is_refused(
    kafka: KafkaSandbox, leaves_out: str, what: str
) -> None:
    topic = f"probed-{leaves_out}"
    admin: Any = AdminClient({**kafka.client_config})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({**kafka.client_config})
    producer.produce(topic, b"one")
    assert producer.flush(30) == 0
    with open_broker(kafka.client_config) as broker, closing(Unfenced(kafka.client_config, SystemClock())) as raw:
        described = [broker.control.topic(topic)]
        raw.leaves_out = leaves_out
        if not what:
            assert probe_leaders(raw, described) == [described[0].partitions[0].leader]
            return
        with pytest.raises(InvalidRequest, match=f"does not refuse a {what}"):
            probe_leaders(raw, described)
