"""`tierstate drill` proves that the bucket brings topics back, leaves nothing in any cluster, and is heard of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.scenarios.house import House, eventually
from tests.scenarios.lost_topics import Lost, produce_all_kinds, remember
from tests.scenarios.test_outages import flip
from tierstate.restore.drill import Place, chosen
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.settings import DRILL_TOPICS, Tiering
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
UNIQUE = "B77wDUR8RHy8A-tEvRU0uw"


@pytest.fixture(scope="module")
def lost(kafka_own: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    """Yield topics that are copied. The cluster is there, and has more than the bucket."""
    house = House(kafka_own, tmp_path_factory.mktemp("drills"), "drills")
    house.run("init")
    try:
        for topic, partitions in {"orders": 3, "events": 1}.items():
            produce_all_kinds(house, house.create(topic, partitions, internal_segment_bytes="20000"), partitions)
        yield remember(house, {"drills-orders": 3, "drills-events": 1})
    finally:
        house.close()


def drill(lost: Lost, kafka: KafkaSandbox, *flags: str, code: int = 0) -> Any:
    done = lost.house.run("drill", "--bootstrap-server", kafka.bootstrap, *flags, "--json", code=code)
    return json.loads(done.stdout)


def topics_left(kafka: KafkaSandbox) -> list[str]:
    admin: Any = AdminClient({**kafka.client_config, "log_level": 0})
    return sorted(each for each in admin.list_topics(timeout=30).topics if each.startswith(DRILL_TOPICS))


def last_stable(kafka: KafkaSandbox, topic: str, partition: int) -> int:
    consumer: Any = Consumer({**kafka.client_config, "group.id": "end", "log_level": 0})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1])
    finally:
        consumer.close()


def test_a_drill_compares_every_record_measures_and_leaves_one_report(lost: Lost, kafka: KafkaSandbox) -> None:
    report = drill(lost, kafka, "--partitions", "2", "--seed", "of-the-test")
    assert report["good"] is True
    assert topics_left(kafka) == []
    places = {(each["source"]["topic"], int(number)) for each in report["topics"] for number in each["requested"]}
    assert len(places) == 2
    for each in report["topics"]:
        topic = each["source"]["topic"]
        rows = {int(number): len(lost.rows[topic, int(number)]) for number in each["requested"]}
        assert sum(row["records"] for row in each["ranges"]) == sum(rows.values())
        assert {row["outcome"] for row in each["ranges"]} == {"equal"}
        assert each["rto"]["topic_log_bytes"] >= each["rto"]["log_bytes"] > 0
        assert each["rto"]["topic_seconds_estimated"] >= each["rto"]["seconds"] - 0.1 > 0
        for number in rows:
            late = last_stable(lost.house.kafka, topic, number) - lost.ends[topic, number]
            assert (each["rpo"][str(number)]["by"], each["rpo"][str(number)]["offsets"]) == ("cluster", late)
            assert each["rpo"][str(number)]["seconds"] is not None
    kept = json.loads((lost.house.store / report.pop("key")).read_text())
    assert kept == report
    assert not (lost.house.store / "_tierstate_restore").exists()
    again = drill(lost, kafka, "--partitions", "2", "--seed", "of-the-test")
    assert {(each["source"]["topic"], int(n)) for each in again["topics"] for n in each["requested"]} == places


def test_partitions_are_chosen_by_the_seed_alone() -> None:
    places = [Place("orders", number) for number in range(50)]
    assert chosen(places, "a", 3) == chosen(reversed(places), "a", 3)
    assert len({tuple(chosen(places, str(seed), 3)) for seed in range(20)}) > 15
    assert chosen(places, "a", 99) == places


def test_a_drill_that_is_interrupted_deletes_its_topic(lost: Lost, kafka: KafkaSandbox) -> None:
    running = lost.house.start("drill", "--bootstrap-server", kafka.bootstrap, "--partitions", "4")
    eventually(lambda: topics_left(kafka))
    assert running.stop() == 130
    assert topics_left(kafka) == []


def test_what_a_killed_drill_left_goes_a_day_later(lost: Lost, kafka: KafkaSandbox) -> None:
    now = SystemClock().now_ms()
    old, young = (f"{DRILL_TOPICS}{now - age:015d}-{UNIQUE}" for age in (86_500_000, 80_000_000))
    admin: Any = AdminClient({**kafka.client_config, "log_level": 0})
    for future in admin.create_topics([NewTopic(old, 1, 1), NewTopic(young, 1, 1)]).values():
        future.result(30)
    drill(lost, kafka, "--topic", "drills-events")
    assert topics_left(kafka) == [young]
    admin.delete_topics([young])[young].result(30)


def test_topics_of_drills_are_never_tiered() -> None:
    assert Tiering(include=(".*",)).covers("orders")
    assert not Tiering(include=(".*",)).covers(f"{DRILL_TOPICS}1")


def test_a_cluster_behind_a_login_is_drilled_by_its_properties(
    lost: Lost, tls_kafka: KafkaSandbox, tmp_path: Path
) -> None:
    file = tmp_path / "standby.properties"
    file.write_text("\n".join(f"{name}={value}" for name, value in tls_kafka.client_config.items()))
    done = lost.house.json("drill", "--command-config", str(file), "--topic", "drills-events")
    assert done["topics"][0]["target"]["cluster_id"] == tls_kafka.cluster_id
    assert topics_left(tls_kafka) == []


@pytest.mark.slow
def test_without_a_cluster_a_kafka_is_started_on_this_machine(lost: Lost) -> None:
    done = lost.house.json("drill", "--topic", "drills-events")
    assert done["good"] is True
    assert done["topics"][0]["target"]["cluster_id"] != lost.house.kafka.cluster_id


def test_a_damaged_object_fails_the_drill_and_agents_show_it_until_the_next_good_one(
    lost: Lost, kafka: KafkaSandbox
) -> None:
    house = lost.house
    good_at = drill(lost, kafka, "--topic", "drills-events")["at"]
    damaged = sorted(path for path in house.store.rglob("*.log") if "drills-events" in str(path))[0]
    flip(damaged, 300)
    report = drill(lost, kafka, "--topic", "drills-events", code=1)
    assert report["good"] is False
    assert report["topics"][0]["errors"]["0"]
    assert topics_left(kafka) == []
    assert report["key"].endswith("-failed")
    with house.agent() as agent:
        eventually(lambda: "tierstate_drill_failed 1.0" in agent.metrics())
        assert "tierstate_drill_last_success_timestamp_seconds 1.7" in agent.metrics()
    flip(damaged, 300)
    assert drill(lost, kafka, "--topic", "drills-events")["at"] > good_at


def test_where_the_cluster_is_lost_groups_of_the_backup_say_how_far_the_bucket_is_behind(
    lost: Lost, kafka: KafkaSandbox
) -> None:
    house, end = lost.house, lost.ends["drills-events", 0]
    consumer: Any = Consumer({**house.kafka.client_config, "group.id": "billing", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("drills-events", 0, end + 3)], asynchronous=False)
    consumer.close()
    house.run("backup")
    house.kafka.kill(0)
    report = drill(lost, kafka, "--partitions", "4")
    late = {each["source"]["topic"]: each["rpo"]["0"] for each in report["topics"]}
    assert all(each.pop("reason") for each in late.values())
    assert late["drills-events"] == {"by": "groups", "offsets": 3, "seconds": None}
    assert late["drills-orders"] == {"by": "nobody", "offsets": None, "seconds": None}
    done = house.run("drill", "--bootstrap-server", kafka.bootstrap, "--partitions", "4")
    assert ("at least 3 offsets" in done.stdout, "unknown" in done.stdout) == (True, True)
    assert "the RPO is not known: " in done.stderr
