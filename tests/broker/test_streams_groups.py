"""Streams groups (KIP-1071) count as consumer groups do, also before their first commit."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.proxy.java_programs import java_program
from tests.scenarios.house import environment, eventually
from tests.servers.java_clients import kafka_streams
from tierstate.broker.groups import GroupPosition
from tierstate.broker.open import Broker
from tierstate.sandbox.artifacts import kafka_libs
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.offsets import Offset

pytestmark = [pytest.mark.kafka, pytest.mark.extended]
RECORDS = 30


def test_a_streams_group_holds_from_its_beginning_until_it_commits(
    kafka: KafkaSandbox, broker: Broker, topic_name: str, make_topics: Any
) -> None:
    topics = make_topics(kafka)
    topics.append(topics.create(topic_name), 0, RECORDS)
    command = [*java_program("StreamsGroup", kafka_streams(), kafka_libs()), kafka.bootstrap, topic_name, topic_name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    ) as application:
        assert application.stdin is not None
        assert application.stdout is not None
        try:
            for _ in range(RECORDS):
                assert application.stdout.readline()
            assert broker.control.groups(topic_name).positions[0] == GroupPosition(topic_name, 0, None)
            application.stdin.close()
            assert application.wait(60) == 0
        finally:
            application.kill()
    committed = GroupPosition(topic_name, 0, Offset(RECORDS))
    assert eventually(lambda: broker.control.groups(topic_name).positions)[0] == committed
