"""The lost tier-state topic comes back from the bucket, and everything visible is as before."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.broker.leaders import topic_id_of
from tests.scenarios.house import House, eventually
from tierstate import read_records
from tierstate.broker.open import open_broker
from tierstate.broker.tier_topic_setup import TierTopicSpec, open_tier_topic
from tierstate.follower.archive import archive
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.follower.view_identity import Shelf
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.offsets import TimestampMs
from tierstate.storage.open import open_store

pytestmark = pytest.mark.kafka

RECORDS = 2_500


@dataclass
class Lost:
    """A topic of two partitions, copied and trimmed; ``told`` is the output of commands before its facts were lost."""

    house: House
    topic: str
    told: dict[str, Any]
    fresh: tuple[str, str]
    """The flag that names another tier-state topic, empty."""


def tell(house: House, topic: str, *flags: str) -> dict[str, Any]:
    """Return everything that a reader sees of a topic, without terms, which are new after a recovery."""
    described = house.json("describe", topic, *flags)
    segments = [house.json("segments", f"{topic}:{number}", *flags) for number in (0, 1)]
    assert all(segments)
    for each in [*described, *(segment for listed in segments for segment in listed)]:
        del each["term"]
        each.pop("agent", None)
    replayed = house.json("replay", topic, *flags)["partitions"]
    return {"describe": described, "segments": segments, "meaning": replayed, "digest": house.digests(topic, *flags)}


@pytest.fixture(scope="module")
def lost(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    house = House(kafka, tmp_path_factory.mktemp("recovery") / "house", "recovery")
    try:
        house.run("init")
        topic = house.create("t", partitions=2)
        for partition in (0, 1):
            house.append(topic, RECORDS, partition)
        house.run("agent", "--once")
        eventually(lambda: len(house.logs(topic)) == len(house.logs(topic, 1)) == 1)
        fresh = ("--set", "tier_state.topic=recovery-fresh")
        house.run("init", *fresh)
        yield Lost(house, topic, tell(house, topic), fresh)
    finally:
        house.close()


def test_verify_finds_nothing_in_a_topic_that_is_whole(lost: Lost) -> None:
    whole = lost.house.json("verify", lost.topic)
    assert whole["findings"] == []
    assert whole["summary"]["segments"] == len(lost.house.manifests(lost.topic)) > 2
    assert whole["summary"]["objects"] == 3 * whole["summary"]["segments"]
    read = lost.house.json("verify", f"{lost.topic}:0", "--level", "3")
    assert read["summary"]["bytes_read"] > 0
    assert "not in this version" in lost.house.run("verify", lost.topic, "--level", "4", code=2).stderr


def test_verify_names_a_missing_object_with_exit_code_4_and_an_orphan_with_1(lost: Lost) -> None:
    house, manifest = lost.house, lost.house.manifests(lost.topic)[0]
    log = manifest.with_suffix(".log")
    whole = log.read_bytes()
    log.unlink()
    try:
        findings = house.json("verify", lost.topic, "--level", "1", code=4)["findings"]
        assert [(each["severity"], each["object_key"]) for each in findings] == [
            ("corrupt", str(log.relative_to(house.store)))
        ]
        line = house.run("verify", lost.topic, code=4).stdout.splitlines()[0]
        assert line.startswith("L1  corrupt")
        assert findings[0]["segment_id"] in line
    finally:
        log.write_bytes(whole)
    orphan = log.with_name(log.name.replace(findings[0]["segment_id"], "AAAAAAAAAAAAAAAAAAAAzA"))
    orphan.write_bytes(b"x")
    try:
        summary = house.json("verify", lost.topic, code=1)["summary"]
        assert (summary["orphan_objects"], summary["corrupt"]) == (1, 0)
    finally:
        orphan.unlink()


def test_a_plan_says_what_would_come_back_and_writes_nothing(lost: Lost) -> None:
    house = lost.house
    plan = house.json("recover", *lost.fresh)
    assert plan["executed"] is False
    assert [each["topic"] for each in plan["partitions"]] == [lost.topic] * 2
    assert [each["known_to_cluster"] for each in plan["partitions"]] == [True, True]
    assert sum(len(each["restored"]) for each in plan["partitions"]) == len(house.manifests(lost.topic))
    assert not any(each["gaps"] or each["not_restored"] for each in plan["partitions"])
    text = house.run("recover", *lost.fresh).stdout
    assert "2 of 2 partitions to be written; --execute does it" in text
    assert house.json("replay", *lost.fresh)["facts"] <= 1  # its meta fact


def test_the_topic_that_stands_is_never_recovered_into(lost: Lost) -> None:
    before = lost.house.run("facts", "--json").stdout
    assert "already says something" in lost.house.run("recover", "--execute", "--agents-are-stopped", code=5).stderr
    assert lost.house.run("facts", "--json").stdout == before


def test_a_hole_in_the_bucket_is_named_with_exit_code_4(lost: Lost, tmp_path: Path) -> None:
    house, manifest = lost.house, lost.house.manifests(lost.topic)[1]
    kept = manifest.rename(tmp_path / "kept")
    try:
        plan = house.json("recover", *lost.fresh, code=4)
        gaps = [gap for each in plan["partitions"] for gap in each["gaps"]]
        assert len(gaps) == 1
        assert gaps[0]["start"] == int(manifest.name[:20])
        lost_range = f"{gaps[0]['start']}..{gaps[0]['end']}"
        said = house.run("recover", *lost.fresh, code=4).stdout
        base = manifest.with_suffix("").relative_to(house.store)
        assert f"GAP  offsets {lost_range} belong to no tier; restore the manifest of {base} first" in said
    finally:
        kept.rename(manifest)


@pytest.fixture
def pieces(lost: Lost) -> list[Path]:
    """Archive everything as an agent does; return the objects."""
    house = lost.house
    kafka = {"bootstrap.servers": house.kafka.bootstrap}
    topic = open_tier_topic(kafka, TierTopicSpec(house.tier_topic, 2, 1))
    store, broker, now = open_store(house.store.as_uri()), open_broker(kafka), TimestampMs(int(time.time() * 1000))
    try:
        identity = ViewIdentity(broker.control.cluster().cluster_id, topic.topic_id, topic.mapped_partitions)
        for number in range(topic.mapped_partitions):
            list(archive(topic, Shelf(store, identity, number), TimestampMs(now + 60_000), 0))
    finally:
        broker.close()
        store.close()
        topic.close()
    return sorted(path for path in (house.store / "_tierstate").rglob("*") if "/archive/" in str(path))


def test_the_archive_binds_and_a_changed_byte_in_it_is_found(lost: Lost, pieces: list[Path]) -> None:
    house, fresh = lost.house, lost.fresh
    plan = house.json("recover", "--from-archive", *fresh)
    assert len(plan["archived_to"]) == len({each.parent for each in pieces}) > 0
    assert {each["log_start_offset_from"] for each in plan["partitions"]} == {"archive"}
    assert house.json("recover", "--without-archive", *fresh)["archived_to"] is None
    assert house.json("verify", lost.topic)["findings"] == []
    for piece in pieces:
        whole = bytearray(piece.read_bytes())
        whole[-1] ^= 1
        piece.write_bytes(whole)
    try:
        assert "archive" in house.run("recover", *fresh, code=4).stderr
        house.run("recover", "--without-archive", *fresh)
        findings = house.json("verify", lost.topic, code=4)["findings"]
        assert {house.store / each["object_key"] for each in findings} <= set(pieces)
        assert {each["severity"] for each in findings} == {"corrupt"}
    finally:
        for piece in pieces:
            whole = bytearray(piece.read_bytes())
            whole[-1] ^= 1
            piece.write_bytes(whole)
    other = ("--topic-id", "AAAAAAAAAAAAAAAAAAAAzA")
    assert "no archive" in house.run("recover", "--from-archive", *other, *fresh, code=2).stderr


@pytest.mark.essential
def test_recovered_records_read_as_before_and_a_second_run_changes_nothing(lost: Lost) -> None:
    house, fresh = lost.house, lost.fresh
    assert house.json("recover", "--execute", "--agents-are-stopped", *fresh)["executed"] is True
    assert tell(house, lost.topic, *fresh) == lost.told
    for partition in (0, 1):
        first = house.run("consume", f"{lost.topic}:{partition}", "--tier", "remote", "--json", *fresh).stdout
        assert first == house.run("consume", f"{lost.topic}:{partition}", "--tier", "remote", "--json").stdout
        assert len(first.splitlines()) > RECORDS // 2
    assert house.json("verify", lost.topic, "--level", "3", *fresh)["findings"] == []
    facts = house.run("facts", "--json", *fresh).stdout
    assert "already recovered" in house.run("recover", "--execute", "--agents-are-stopped", *fresh).stderr
    house.run("recover", "--execute", "--resume", "--agents-are-stopped", *fresh)
    assert house.run("facts", "--json", *fresh).stdout == facts
    kinds = [json.loads(line)["fact"] for line in facts.splitlines()]
    assert kinds.count("LeaderElected") == kinds.count("LogStartAdvanced") == 2
    # and an agent goes on with it
    house.append(lost.topic, RECORDS, first=RECORDS)
    house.run("agent", "--once", *fresh)
    assert house.json("verify", lost.topic, *fresh)["findings"] == []
    assert len(house.json("segments", f"{lost.topic}:0", *fresh)) > len(lost.told["segments"][0])


def test_a_deleted_topic_comes_back_next_to_newer_facts_and_is_read_by_its_id(lost: Lost, tmp_path: Path) -> None:
    """Topics of an earlier cluster come back so: agents here have written facts of their own by then."""
    house, beside = lost.house, ("--set", "tier_state.topic=recovery-beside")
    admin: Any = AdminClient({"bootstrap.servers": house.kafka.bootstrap, "log_level": 0})
    gone = house.create("gone")
    house.append(gone, RECORDS)
    house.run("agent", "--once")
    (described,) = house.json("describe", gone)
    copied = house.run("consume", f"{gone}:0", "--tier", "remote").stdout
    assert len(copied.splitlines()) > RECORDS // 2
    by_id = f"{described['topic_id']}:0"
    assert f"topic={gone}" in house.run("consume", by_id, code=2).stderr, "it is still there: to be read by its name"
    old = topic_id_of(house.kafka.client_config, house.tier_topic)
    admin.delete_topics([gone])[gone].result(30)
    eventually(lambda: gone not in admin.list_topics(timeout=60).topics)

    house.run("init", *beside)
    ours = house.create("ours")
    house.append(ours, RECORDS)
    house.run("agent", "--once", *beside, "--set", f'tiering.include=["{ours}"]')
    house.manifests(lost.topic)[1].rename(tmp_path / "manifest")  # recovery reports this gap and restores the rest
    house.run("recover", "--execute", "--topic-id", old, *beside, code=4)
    assert house.run("consume", by_id, *beside).stdout == copied
    assert len(house.json("segments", by_id, *beside)) == len(house.manifests(gone))
    kafka, store = {"bootstrap.servers": house.kafka.bootstrap}, house.store.as_uri()
    batches = read_records(
        kafka, store, described["topic_id"], 0, 0, 100, settings={"tier_state.topic": "recovery-beside"}
    )
    assert sum(batch.num_rows for batch in batches) == 100
    assert house.json("verify", ours, *beside)["summary"]["segments"] > 0
    again = house.run("recover", "--execute", "--topic-id", old, *beside, code=4).stderr
    assert "already recovered" in again
