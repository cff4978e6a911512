"""`tierstate adopt`, as people type it: what Kafka tiered itself, and what is left of a lost cluster, are read here."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kip405.kafkas_tiers import KafkasTiers, kafkas_tiers, plainly, transactions, until
from tests.scenarios.house import House, run
from tierstate import read_records
from tierstate.state.object_keys import ObjectKind
from tierstate.storage.directory import DirectoryStore

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
AIVEN = Path(__file__).parents[1] / "data" / "aiven-kafka"


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkasTiers]:
    with kafkas_tiers(tmp_path_factory.mktemp("adopt")) as made:
        yield made


@pytest.fixture
def house(tiers: KafkasTiers, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    made = House(tiers.kafka, tmp_path / "house", request.node.name.removeprefix("test_")[:20].replace("_", "-"))
    made.run("init")
    yield made
    made.close()


def digest(house: House, topic: str, *flags: str) -> tuple[int, str]:
    (row,) = house.json("digest", topic, *flags)["partitions"]
    return row["records"], row["digest"]


def tiered(tiers: KafkasTiers, topic: str) -> None:
    """Fill a topic with plain, aborted and committed records, of which Kafka copies segments."""
    plainly(tiers.kafka, topic, count=300)
    for outcome in ("commit", "abort"):
        transactions(tiers.kafka, topic, [("a", "begin"), ("a", "write"), ("a", outcome)])
    plainly(tiers.kafka, topic, count=500)
    tiers.offloaded(topic, segments=4)


def test_a_topic_that_kafka_tiered_goes_on_with_tierstate(tiers: KafkasTiers, house: House) -> None:
    topic = f"{house.name}-orders"
    tiers.topic(topic)
    tiered(tiers, topic)
    before, local = digest(house, topic, "--via", "broker"), tiers.local_start(topic)
    assert local > 300
    source = tiers.bucket.as_uri()
    plan = house.run("adopt", topic, "--from", source)
    assert "nothing was done, --execute does it" in plan.stderr
    assert not list(house.store.rglob("*.log"))
    killed(house, topic, source)
    adopted = house.json("adopt", topic, "--from", source, "--execute")
    assert adopted["partitions"][0]["problems"] == []
    again = house.json("adopt", topic, "--from", source, "--execute")
    assert again["partitions"][0]["adopted"] == []
    assert again["partitions"][0]["adopted_before"] == len(list(house.store.rglob(f"*{ObjectKind.MANIFEST}")))

    tiers.configure(topic, **{"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
    house.run("agent", "--once")
    until(lambda: digest(house, topic, "--via", "broker")[0] < before[0])  # Kafka forgot what it had tiered
    assert digest(house, topic, "--via", "reader") == before
    house.run("verify", topic, "--level", "3")
    plainly(tiers.kafka, topic, count=300)
    house.run("agent", "--once")
    assert digest(house, topic, "--via", "reader")[0] == before[0] + 300
    house.run("verify", topic, "--level", "3")


def killed(house: House, topic: str, source: str) -> None:
    """Kill an adoption once it has copied a segment: it is slow, and the last one is far away."""
    running = house.start("adopt", topic, "--from", source, "--execute", "--set", "copy.quota=20KiB")
    until(lambda: bool(list(house.store.rglob(f"*{ObjectKind.MANIFEST}"))))
    assert running.process.poll() is None
    running.process.kill()
    running.process.wait()


@pytest.mark.parametrize("case", ["gzip", "transactions", "epochs", "abort-marker-in-next-segment"])
def test_the_plugins_own_segments_are_read_by_their_topic_id(case: str, house: House, tmp_path: Path) -> None:
    """No cluster has these topics. The second segment of the last case decides the first one's transaction."""
    with house.config.open("a") as config:
        config.write(f'[encryption]\nkeyring = "{AIVEN / "keyring.toml"}"\n')
    bucket = golden_bucket(case, tmp_path)
    folder = next(bucket.rglob(f"*{ObjectKind.MANIFEST}")).parts[-3]
    topic, topic_id = folder[:-23], folder[-22:]
    done = house.run("adopt", topic, "--from", bucket.as_uri(), "--execute", code=4 if case in UNDECIDED else 0)
    assert ("how a transaction ended" in done.stdout) == (case in UNDECIDED)
    if case == "transactions":  # its only segment ends within a transaction
        assert not house.manifests()
        return
    settings = {"tier_state.topic": house.tier_topic, "encryption.keyring": str(AIVEN / "keyring.toml")}
    everything = golden_rows(AIVEN / case, "read_uncommitted")
    span = everything[0][0], everything[-1][0] + 1
    for file in (AIVEN / case).glob("*.jsonl.gz"):
        isolation = file.name.removesuffix(".jsonl.gz")
        batches = read_records(
            house.kafka.client_config, house.store.as_uri(), topic_id, 0, *span, isolation=isolation, settings=settings
        )
        rows = [(row["offset"], row["key"], row["value"]) for batch in batches for row in batch.to_pylist()]
        expected = golden_rows(AIVEN / case, isolation)
        assert rows == [(offset, key, value) for offset, _, _, key, value, *_ in expected], isolation


def golden_bucket(case: str, folder: Path) -> Path:
    bucket = shutil.copytree(AIVEN / case / "bucket", folder / "bucket")
    DirectoryStore(bucket)  # a folder of tierstate has a mark
    return bucket


def golden_rows(folder: Path, isolation: str) -> list[tuple[Any, ...]]:
    def plain(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    with gzip.open(folder / f"{isolation}.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return [(*row[:3], plain(row[3]), plain(row[4])) for row in rows]


UNDECIDED = ("transactions", "abort-marker-in-next-segment")
"""Cases whose last segment has a transaction that ends behind it."""


def test_another_prefix_is_adopted_after_its_cluster_was_lost(house: House, tmp_path: Path) -> None:
    """Only the bucket is left of the lost cluster: its topic id is unknown here, and its archive counts."""
    lost = House(house.kafka, tmp_path / "lost", f"lost-{house.name}")
    lost.run("init")
    topic = lost.create("orders")
    lost.append(topic, 2_000)
    with lost.agent() as agent:
        until(lambda: len(lost.logs(topic)) == 1)
        lost.run("delete-records", f"{topic}:0", "--before", "300", "--execute")
        command = ("consume", f"{topic}:0", "-n", "1", "--source", "bucket", "--format", "%o", "--config")
        until(lambda: run(*command, str(lost.config)).stdout == "300")
        assert agent.process.poll() is None
    topic_id = lost.manifests(topic)[0].parts[-3][-22:]
    admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
    before = lost.lines("consume", f"{topic}:0", "-n", "5")
    admin.delete_topics([topic])[topic].result(30)
    house.run("adopt", topic, "--from", lost.store.as_uri(), "--execute")
    after = house.lines("consume", f"{topic_id}:0", "-n", "5")
    assert [each["value"] for each in after] == [each["value"] for each in before]
    lost.close()


def test_a_topic_of_the_cluster_with_another_id_is_not_confused_with_the_sources(house: House, tmp_path: Path) -> None:
    bucket = golden_bucket("gzip", tmp_path)
    admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
    admin.create_topics([NewTopic("gold-s7b-gzip", 1, 1)])["gold-s7b-gzip"].result(30)
    refused = house.run("adopt", "gold-s7b-gzip", "--from", bucket.as_uri(), "--execute", code=2)
    assert "under other topic ids" in refused.stderr
    assert not house.manifests()
    assert "no segment of this topic" in house.run("adopt", "nothing", "--from", bucket.as_uri(), code=2).stderr
