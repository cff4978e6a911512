"""``tierstate gateway`` as a process: a real broker, a view on disk, answers over HTTP, an orderly end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tierstate.broker.tier_topic_setup import TierTopicSpec, create_tier_topic
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox

RECORDS = 300


@pytest.mark.kafka
def test_a_gateway_process_serves_a_real_topic_until_it_is_told_to_stop(
    kafka: KafkaSandbox, topic_name: str, tmp_path: Path
) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap}
    topic, tier_state = topic_name[-60:], f"state-{topic_name[-60:]}"
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer(servers)
    for at in range(RECORDS):
        producer.produce(topic, key=b"%d" % at, value=b'{"n": %d}' % at, partition=0)
    producer.flush(30)
    create_tier_topic(servers, TierTopicSpec(tier_state, 2, 1), SystemClock().now_ms())
    command = [
        sys.executable, "-m", "tierstate.cli.main", "gateway", "--listen", "127.0.0.1:0", "--json",
        "--bootstrap-server", kafka.bootstrap, "--store", f"file://{tmp_path}/store",
        "--set", f"state_dir={tmp_path}/state", "--set", "management.listen=127.0.0.1:0",
        "--set", "management.hosts=tier.example",
        "--set", f"tier_state.topic={tier_state}", "--set", "tier_state.replication_factor=1",
        "--set", f"gateway.topics={topic}",
    ]  # fmt: skip
    (tmp_path / "store").mkdir()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            event = json.loads(process.stdout.readline() or "{}")
            url = f"{event['address']}/v1/topics/{topic}/partitions/0"
            assert httpx.get(url).json()["high_watermark"] == RECORDS
            answer = httpx.get(
                f"{url}/records?offset=5", headers={"accept": "application/vnd.kafka.json.v2+json"}, timeout=30
            )
            assert [record["value"]["n"] for record in answer.json()] == list(range(5, RECORDS))
            assert answer.headers["x-tier"] == "local"
            at_end = httpx.get(f"{url}/records?offset={RECORDS}&timeout_ms=300", timeout=30)
            assert (at_end.status_code, at_end.headers["x-next-offset"]) == (200, str(RECORDS))
            assert httpx.get(f"{event['address']}/v1/topics/{tier_state}").status_code == 404
            for host, status in (("localhost", 200), ("tier.example:9405", 200), ("other.example", 421)):
                ready = httpx.get(f"http://{event['management']}/readyz", headers={"host": host})
                assert ready.status_code == status
        finally:
            process.send_signal(signal.SIGTERM)
            _, notes = process.communicate(timeout=60)
    assert process.returncode == 0, notes
    kept = [path for path in (tmp_path / "state").rglob("*")]
    assert any(path.is_file() for path in kept)
    assert {path.name for path in kept if path.stat().st_mode & 0o077} == set(), "nobody else may look into a view"
    lines = [json.loads(line) for line in notes.splitlines()]
    assert f"listening on {event['address']}" in [line["event"] for line in lines], "no plain line is among them"


def test_without_the_extra_the_command_names_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['fastapi'] = None; from tierstate.cli.main import run; sys.exit(run(['gateway']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert "needs the extra [gateway]" in done.stderr
