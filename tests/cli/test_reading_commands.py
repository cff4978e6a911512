"""`consume` and `digest` on a real broker whose oldest records are in an object store only."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fetch.two_tiers import NOW, Folder, TwoTiers
from tierstate.broker.open import open_broker
from tierstate.broker.tier_topic_setup import TierTopicSpec, create_tier_topic, open_tier_topic
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import UnknownTopic
from tierstate.state.ids import BrokerId, TopicIdPartition
from tierstate.state.offsets import Offset
from tierstate.storage.directory import DirectoryStore

pytestmark = pytest.mark.kafka
TOPIC = "reading-commands"
TIER_TOPIC = "_tier-state-of-reading-commands"
RECORDS = 900
BEGAN = 1_767_225_600_000


@dataclass
class Cluster:
    call: Callable[..., tuple[int, bytes, str]]
    before: dict[str, Any]
    border: int

    def json(self, *arguments: str) -> Any:
        code, out, notes = self.call(*arguments, "--json")
        assert code == 0, notes
        return json.loads(out)

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        code, out, notes = self.call("consume", *arguments, "--json")
        assert code == 0, notes
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    properties = {"bootstrap.servers": kafka.bootstrap}
    store = DirectoryStore(tmp_path_factory.mktemp("reading") / "store")
    admin: Any = AdminClient(properties)
    config = {"internal.segment.bytes": "12000", "retention.ms": "-1", "segment.ms": str(10**15)}
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(30)
    producer: Any = Producer({**properties, "linger.ms": 0, "batch.num.messages": 5})
    for number in range(RECORDS):
        headers = [("number", str(number).encode())]
        producer.produce(
            TOPIC, b"value %d" % number, b"key %d" % (number % 3), 0, timestamp=BEGAN + number, headers=headers
        )
        if number % 10 == 9:
            producer.flush(30)

    def call(*arguments: str) -> tuple[int, bytes, str]:
        flags = ["--bootstrap-server", kafka.bootstrap, "--store", store.description]
        flags += ["--set", f"tier_state.topic={TIER_TOPIC}", "--set", "tier_state.replication_factor=1"]
        command = [sys.executable, "-m", "tierstate.cli.main", *arguments, *flags]
        done = subprocess.run(command, capture_output=True, check=False, timeout=120)
        return done.returncode, done.stdout, done.stderr.decode()

    spec = TierTopicSpec(TIER_TOPIC, 1, 1)
    for _ in range(20):  # a broker answers for a topic only some time after it was created
        try:
            create_tier_topic(properties, spec, NOW)
            break
        except UnknownTopic:
            time.sleep(0.5)
    with open_broker(properties) as broker, closing(open_tier_topic(properties, spec)) as topic:
        code, out, notes = call("digest", TOPIC, "--via", "broker", "--json")
        assert code == 0, notes
        folder = Folder(Path(kafka.brokers[0].log_dir) / f"{TOPIC}-0")
        place = TopicIdPartition(broker.control.topic(TOPIC).topic_id, 0)
        tiers = TwoTiers(place, TOPIC, store, topic)
        with closing(tiers.view):
            bases = folder.bases[:4]
            tiers.copy_all(folder, 3)
        border = bases[3] - 5
        broker.control.delete_records_on(BrokerId(1), TOPIC, 0, Offset(border))
        yield Cluster(call, json.loads(out), border)


def test_two_readers_give_one_digest_although_one_of_them_needs_the_object_store(cluster: Cluster) -> None:
    after = cluster.json("digest", TOPIC, "--via", "consumer", "--per-segment")
    assert (after["records"], after["digest"]) == (RECORDS, cluster.before["digest"])
    assert cluster.json("digest", TOPIC, "--via", "broker")["records"] == RECORDS - cluster.border
    assert len(after["ranges"]) == 3


def test_the_local_part_is_the_same_by_kafkas_client_and_by_ours(cluster: Cluster) -> None:
    part = ("--from", str(cluster.border))
    ours = cluster.json("digest", f"{TOPIC}:0", *part)
    assert ours["digest"] == cluster.json("digest", f"{TOPIC}:0", "--via", "broker", *part)["digest"]


def test_ranges_from_a_file_are_counted_by_any_reader(cluster: Cluster, tmp_path: Path) -> None:
    boundaries = tmp_path / "boundaries.json"
    boundaries.write_text('{"0": [[0, 10], [10, 25]]}')
    ranges = cluster.json("digest", TOPIC, "--boundaries", str(boundaries))["ranges"]
    assert [(row["start_offset"], row["end_offset"], row["records"]) for row in ranges] == [
        (0, 10, 10),
        (10, 25, 15),
    ]


def test_records_are_read_across_the_border_and_say_which_tier_had_them(cluster: Cluster) -> None:
    records = cluster.lines(TOPIC)
    assert [record["offset"] for record in records] == list(range(RECORDS))
    tiers = [record["tier"] for record in records]
    assert tiers == ["remote"] * cluster.border + ["local"] * (RECORDS - cluster.border)


def test_a_search_says_on_stderr_how_far_it_looked(cluster: Cluster) -> None:
    code, out, notes = cluster.call("consume", TOPIC, "--contains", "nowhere")
    assert (code, out) == (0, b"")
    note = re.search(r"looked through 900 records, [0-9,]+ bytes, up to offset 900 of reading-commands$", notes, re.M)
    assert note is not None, notes


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (("--from", "-5"), range(RECORDS - 5, RECORDS)),
        (("--from", "7", "--to", "12"), range(7, 12)),
        (("--from", "3", "-n", "4"), range(3, 7)),
        (("--from", f"@{BEGAN + 20}", "-n", "1"), range(20, 21)),
        (("--from", "latest"), range(0)),
        (("-n", "0"), range(0)),
        (("--key", "key 1", "--from", "100", "--to", "200"), range(100, 200, 3)),
        (("--contains", "ue 40", "-n", "3"), [40, 400, 401]),
        (("--contains", "MTIz", "--encoding", "base64"), [123]),
    ],
)
def test_flags_select_the_begin_the_end_and_the_records(
    cluster: Cluster, flags: tuple[str, ...], wanted: Sequence[int]
) -> None:
    assert [record["offset"] for record in cluster.lines(f"{TOPIC}:0", *flags)] == list(wanted)


def test_one_tier_alone_has_its_own_range(cluster: Cluster) -> None:
    assert cluster.lines(TOPIC, "--tier", "local")[0]["offset"] == cluster.border
    remote = cluster.lines(TOPIC, "--tier", "remote")
    assert {record["tier"] for record in remote} == {"remote"}
    assert remote[-1]["offset"] == cluster.border + 4  # the segments reach into the local tier
    code, _, notes = cluster.call("consume", TOPIC, "--tier", "local", "--from", "0")
    assert code == 5
    assert f"valid_start={cluster.border}" in notes


def test_the_format_is_kcats(cluster: Cluster) -> None:
    code, out, notes = cluster.call("consume", f"{TOPIC}:0", "-n", "2", "--format", r"%t/%p/%o %k=%s %T %h 100%%\n")
    assert (code, out.decode().splitlines()) == (
        0,
        [f"{TOPIC}/0/{n} key {n}=value {n} {BEGAN + n} number={n} 100%" for n in range(2)],
    ), notes


def test_a_format_without_a_field_is_printed_for_every_record(cluster: Cluster) -> None:
    assert cluster.call("consume", f"{TOPIC}:0", "-n", "3", "--format", r"x\n")[:2] == (0, b"x\n" * 3)


def test_a_wrong_format_and_an_unknown_partition_are_usage_errors(cluster: Cluster) -> None:
    assert cluster.call("consume", TOPIC, "--format", "%x")[0] == 2
    assert cluster.call("consume", f"{TOPIC}:9")[0] == 2
    assert cluster.call("consume", "no-such-topic")[0] == 2
