"""Remains of dead attempts, and unknown objects: agents sweep some, `tierstate sweep` shows and deletes others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.house import House, eventually, run
from tests.scenarios.story import Effect, Story, observes
from tests.scenarios.story_kafka import ClusterAdmin
from tierstate.follower.archive import archive
from tierstate.follower.archives import begin_history
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.follower.view_identity import Shelf
from tierstate.runtime import operation
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.object_keys import ObjectKind
from tierstate.state.offsets import TimestampMs
from tierstate.state.segment import SegmentState

pytestmark = pytest.mark.kafka
GOLDEN = Path(__file__).parents[1] / "data" / "aiven" / "plain"


class Swept:
    """The sweep command on a story, and the objects of its topic ``orders``."""

    def __init__(self, story: Story) -> None:
        self.story, self.store = story, story.cluster.store
        self.name = story.topic("orders").name
        self.config = story.cluster.store_folder.parent / "tierstate.toml"
        self.config.write_text(
            f'state_dir = "{self.config.parent / "state"}"\n'
            f'[kafka]\n"bootstrap.servers" = "{story.sandbox.bootstrap}"\n'
            f'[store]\nurl = "{story.cluster.store_folder.as_uri()}"\n'
            f'[tier_state]\ntopic = "{story.cluster.spec.name}"\npartitions = 2\nreplication_factor = 1\n'
            f'[tiering]\ninclude = ["{story.name}-.*"]\n'
        )

    def sweep(self, *flags: str, code: int = 0) -> dict[str, Any]:
        done = run("sweep", self.name, *flags, "--json", "--config", str(self.config))
        assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
        document: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"error": done.stderr}
        return document

    def kinds(self, *flags: str, code: int = 0) -> dict[str, str]:
        return {each["object_key"]: each["kind"] for each in self.sweep(*flags, code=code)["found"]}

    def objects(self) -> set[str]:
        return set(self.story.then.remote("orders").objects())

    def strangers(self) -> dict[str, bytes]:
        """Return a segment of Kafka's own plugin, as it was, and as if it belonged to this very partition."""
        eyes = self.story.eyes
        place = eyes.place(self.story.topic("orders"), 0)
        files = [path for path in GOLDEN.rglob("*-*.*") if path.suffix in set(ObjectKind)]
        objects = {path.relative_to(GOLDEN).as_posix(): path.read_bytes() for path in files}
        objects |= {f"{self.name}-{place.topic_id}/0/{path.name}": path.read_bytes() for path in files}
        assert len(objects) == 6
        for key, data in objects.items():
            self.store.put_if_absent(key, data)
        return objects

    def archive(self, history: int) -> None:
        """Archive every fact so far, in a history that counts from now on."""
        tiers = self.story.eyes.tiers
        if history:
            begin_history(self.store, tiers.topic_id, history, SystemClock().now_ms(), "a test", ())
        identity = ViewIdentity(self.story.sandbox.cluster_id, tiers.topic_id, tiers.mapped_partitions, history=history)
        for number in range(tiers.mapped_partitions):
            operation.run(archive(tiers, Shelf(self.store, identity, number), TimestampMs(2**62), 0))


@observes(Effect.AGENT_STOPPED, Effect.COPIED, Effect.CONDEMNED, Effect.DELETED, Effect.ERASED)
def test_only_objects_of_an_agent_killed_in_a_copy_are_swept(story: Story) -> None:
    given, when, then = story
    given.settings(sweep={"grace": 6})
    given.topic("orders", per_segment=2).with_segments(3)
    swept = Swept(story)
    when.agent(0).stops_before("put indexes")
    (dangling,) = swept.objects()
    theirs = swept.strangers()
    assert dangling.endswith(ObjectKind.LOG)
    when.agent_dies(0)

    when.agent(0).works()  # the next term
    (left,) = then.remote("orders").view.in_state(SegmentState.ABANDONED)
    (row,) = [each for each in swept.sweep(code=1)["found"] if each["kind"] == "abandoned"]
    assert dangling.startswith(row["object_key"])
    assert row["bytes"] == swept.store.head(dangling).size
    assert "sweep.grace" in row["why"]

    eventually(lambda: when.agent(0).works() and dangling not in swept.objects())
    eventually(lambda: when.agent(0).works() and left.segment_id not in then.remote("orders").view.segments)
    then.remote("orders").holds(0, 5)
    then.reader("orders").reads_all()
    for key, data in theirs.items():
        assert swept.store.get(key) == data


@pytest.mark.parametrize("history", [0, pytest.param(1, marks=pytest.mark.slow)])
@observes(Effect.COPIED, Effect.DELETED)
def test_a_person_sees_all_and_deletes_what_facts_condemn_and_what_is_named_key_by_key(
    story: Story, history: int
) -> None:
    given, when, _ = story
    given.settings(sweep={"grace": 6})
    given.topic("orders", per_segment=2).with_segments(3)
    when.agent(0).works()
    swept = Swept(story)
    assert swept.sweep()["found"] == []
    alive = swept.objects()
    gone = {key: swept.store.get(key) for key in alive if f"/{0:020d}-" in key}
    assert len(gone) == 3
    when.config_changes("orders", **{"retention.bytes": str(1)})
    eventually(lambda: when.agent(0).works() and not swept.objects() & set(gone))
    eventually(lambda: when.agent(0).works() and not swept.objects())
    when.agent_dies(0)
    for key, data in gone.items():  # a slow write lands them after the deletion
        swept.store.put_if_absent(key, data)
    theirs = {key for key in swept.strangers() if key.startswith(swept.name)}

    assert set(swept.kinds(code=1).values()) == {"orphan"}, "its facts are erased, and there is no archive yet"
    swept.archive(history)
    assert swept.kinds(code=1) == dict.fromkeys(gone, "condemned") | dict.fromkeys(theirs, "orphan")
    assert swept.objects() == set(gone) | theirs, "nothing was done"

    assert swept.sweep("--execute", "--orphan", "no/such.log", code=2)["error"].count("no such object") == 1
    assert swept.objects() == set(gone) | theirs, "all or nothing"
    document = swept.sweep("--execute", code=1)
    assert {each["object_key"] for each in document["found"] if each["swept"]} == set(gone)
    assert swept.objects() == theirs

    listing = story.cluster.store_folder.parent / "orphans.txt"
    first, *others = sorted(theirs)
    listing.write_text("\n".join(others))
    swept.sweep("--execute", "--orphan", first, "--orphans-from", str(listing))
    assert swept.objects() == set()
    assert swept.sweep()["found"] == []


@observes(Effect.COPIED)
def test_objects_that_facts_name_and_paused_topics_are_never_deleted(story: Story) -> None:
    given, when, _ = story
    given.topic("orders", per_segment=2).with_segments(2)
    when.agent(0).works()
    swept = Swept(story)
    alive = swept.objects()
    key = next(iter(alive))
    assert "it is no orphan" in swept.sweep("--execute", "--orphan", key, code=2)["error"]
    place = story.eyes.place(story.topic("orders"), 0)
    stray = f"{swept.name}-{place.topic_id}/0/stray"
    swept.store.put_if_absent(stray, b"x")
    assert swept.kinds(code=1) == {stray: "unknown"}
    done = run("pause", swept.name, "--config", str(swept.config))
    assert done.returncode == 0, done.stderr
    assert "paused" in swept.sweep("--execute", "--orphan", stray, code=5)["error"]
    assert swept.objects() == alive | {stray}


@pytest.mark.slow
def test_an_agent_process_sweeps_late_objects_and_counts_unknown_ones(kafka: KafkaSandbox, tmp_path: Path) -> None:
    house = House(kafka, tmp_path / "house", "sweeping")
    try:
        house.run("init")
        topic = house.create("late")
        house.append(topic, 3_000)
        with house.agent("--set", "sweep.grace=8s", "--set", "expire.grace=0s") as agent:
            eventually(lambda: len(house.logs(topic)) == 1)
            gone = {path: path.read_bytes() for path in house.objects() if f"{0:020d}-" in path.name}
            assert len(gone) == 3
            ClusterAdmin(kafka).alter(topic, **{"retention.bytes": "1"})
            eventually(lambda: not house.objects(), 90)
            for path, data in gone.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            stray = next(iter(gone)).with_name("stray")
            stray.write_bytes(b"12345")
            eventually(lambda: house.objects() == [stray], 90)
            eventually(lambda: "tierstate_orphan_objects 1.0" in agent.metrics().splitlines())
        (row,) = house.json("sweep", topic, code=1)["found"]
        assert (row["kind"], row["bytes"], row["swept"]) == ("unknown", 5, False)
    finally:
        house.close()
