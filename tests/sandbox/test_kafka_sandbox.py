"""The sandbox starts real brokers and ends them all when it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.servers.frozen_broker import freeze, thaw
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import BrokerUnavailable, InvalidRequest

pytestmark = pytest.mark.kafka

HOLD_A_SANDBOX = """
import sys, time
from tierstate.sandbox.kafka import KafkaSandbox
with KafkaSandbox() as kafka:
    print(kafka.brokers[0].pid, kafka.folder, flush=True)
    time.sleep(600)
"""


def test_a_shared_broker_answers_with_one_broker(kafka: KafkaSandbox) -> None:
    brokers = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=60).brokers
    assert [broker.id for broker in brokers.values()] == [1]
    assert (kafka.brokers[0].log_dir / "meta.properties").is_file()


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_brokers_die_with_their_parent(
    death: signal.Signals, is_gone: Callable[[int], bool], wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_A_SANDBOX], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        assert not is_gone(int(pid))
        parent.send_signal(death)
    try:
        wait_until(lambda: is_gone(int(pid)))
    finally:
        if not is_gone(int(pid)):
            os.kill(int(pid), signal.SIGKILL)
        shutil.rmtree(folder)


def test_two_sandboxes_at_once_share_nothing(kafka: KafkaSandbox) -> None:
    with KafkaSandbox() as other:
        assert other.bootstrap != kafka.bootstrap
        assert other.folder != kafka.folder
        metadata = AdminClient({"bootstrap.servers": other.bootstrap}).list_topics(timeout=60)
        assert metadata.cluster_id == other.cluster_id != kafka.cluster_id
        folder = other.folder
    assert not folder.exists()


def test_the_log_is_kept_when_the_block_fails() -> None:
    def fail(folders: list[Path]) -> None:
        with KafkaSandbox() as kafka:
            folders.append(kafka.folder)
            raise InvalidRequest("the test's own")

    folders: list[Path] = []
    with pytest.raises(InvalidRequest):
        fail(folders)
    broker = folders[0] / "broker-1"
    assert "Kafka Server started" in (broker / "broker.log").read_text()
    assert not (broker / "data").exists()
    shutil.rmtree(folders[0])


def test_a_broker_that_cannot_start_says_why() -> None:
    sandbox = KafkaSandbox(properties={"log.retention.check.interval.ms": "0"})
    with pytest.raises(BrokerUnavailable, match=r"could not be formatted.*log\.retention\.check"):
        sandbox.open()
    shutil.rmtree(sandbox.folder)


def test_only_one_or_three_brokers() -> None:
    with pytest.raises(InvalidRequest, match="1 or 3"):
        KafkaSandbox(2)


def process_state(pid: int | None) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_killed_broker_starts_again_on_its_port_and_a_frozen_one_thaws(
    kafka_three: KafkaSandbox, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    before = kafka_three.bootstrap
    kafka_three.kill(1)
    assert kafka_three.brokers[1].pid is None
    kafka_three.start(1)
    kafka_three.stop(2)
    assert kafka_three.brokers[2].pid is None
    kafka_three.start(2)
    freeze(kafka_three, 0)
    wait_until(lambda: process_state(kafka_three.brokers[0].pid) == "T")
    thaw(kafka_three, 0)
    wait_until(lambda: process_state(kafka_three.brokers[0].pid) != "T")
    assert kafka_three.bootstrap == before
    for broker in kafka_three.brokers:
        client = AdminClient({"bootstrap.servers": str(broker.address)})
        assert len(client.list_topics(timeout=60).brokers) == 3


def test_a_release_it_has_no_jars_of_is_refused_before_anything_starts() -> None:
    with pytest.raises(InvalidRequest, match=r"no such release.*3\.0\.0"):
        KafkaSandbox(release="3.0.0")
