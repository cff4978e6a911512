"""How an agent learns about its disks and its cluster, when, and at what cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.api.gateways import StandIn
from tests.leader.test_hosting import add_folder
from tests.leader.test_observing import Counted
from tests.leader.world import World
from tierstate.leader.discovery import DISKS_S, METADATA_S, UNSEEN_S, Discovery
from tierstate.leader.open import hosted_partitions
from tierstate.leader.schedule import BLIND_S, LONGEST_S, Schedule
from tierstate.log.folder_events import Touched
from tierstate.log.local_log import LocalLog, LogDirs
from tierstate.runtime.settings import Settings
from tierstate.state.errors import AccessDenied, Unavailable
from tierstate.state.ids import COPIER, BrokerId, TopicId, TopicIdPartition


class Desk:
    """A discovery over the world's folder and a cluster that counts questions."""

    def __init__(self, world: World) -> None:
        self.world, self.broker = world, Counted(world)
        self.schedule = Schedule(world.clock, lambda partition: 0)
        settings = Settings.model_validate({"tiering": {"include": [".*"], "exclude": ["left"]}})
        context = replace(world.process().context, broker=self.broker.control)
        self.discovery: Discovery = hosted_partitions(settings, context, self.schedule)
        for partition in self.discovery():
            self.schedule.follow(partition)
        self.called()

    def called(self) -> list[TopicIdPartition]:
        return self.schedule.due((), 100)


@pytest.fixture
def desk(world: World) -> Desk:
    return Desk(world)


def test_while_nothing_changes_the_answer_is_the_very_same_and_the_cluster_is_asked_every_other_second(
    desk: Desk,
) -> None:
    first = desk.discovery()
    for _ in range(40):
        desk.world.clock.advance(0.25)
        assert desk.discovery() is first
    assert desk.broker.asked["topics"] == 1 + 10 / METADATA_S
    assert desk.called() == []


def test_a_leadership_that_goes_is_known_within_one_metadata_interval(desk: Desk) -> None:
    world = desk.world
    world.broker.elect(world.name, 0, 2)
    assert desk.discovery()[world.partition].leads
    world.clock.advance(METADATA_S)
    assert not desk.discovery()[world.partition].leads


def test_a_fresh_question_gets_the_present_answer(desk: Desk) -> None:
    world = desk.world
    world.broker.elect(world.name, 0, 2)
    assert not desk.discovery.afresh()[world.partition].leads


def test_a_led_partition_without_a_folder_is_missed_after_a_while(desk: Desk) -> None:
    world = desk.world
    topic_id = world.broker.create_topic("elsewhere")
    world.broker.create_topic("left")  # excluded
    world.broker.create_topic("__consumer_offsets")

    def missed() -> tuple[str, ...]:
        world.clock.advance(METADATA_S)
        desk.discovery()
        return desk.discovery.unseen()

    assert missed() == ()
    world.clock.advance(UNSEEN_S)
    assert missed() == ("elsewhere-0",)
    world.broker.elect("elsewhere", 0, 2)
    assert missed() == ()
    world.broker.elect("elsewhere", 0, 1)
    assert missed() == ()
    world.clock.advance(UNSEEN_S)
    assert missed() == ("elsewhere-0",)
    add_folder(world, "elsewhere-0", topic_id)
    assert missed() == ()


def test_an_agent_by_fetch_misses_no_partition_that_another_agent_copies(world: World) -> None:
    class Owned(StandIn):  # type: ignore[misc]
        agent_id = COPIER
        broker = BrokerId(1)

        def touched(self) -> Touched:
            return Touched(frozenset(), folders=True, blind=True)

        def partitions(self) -> dict[TopicIdPartition, str]:
            return {}

    context = replace(world.process().context, log=cast("LocalLog", Owned()))
    settings = Settings.model_validate({"tiering": {"include": [".*"]}})
    discovery = hosted_partitions(settings, context, Schedule(world.clock, lambda partition: 0))
    discovery()
    world.clock.advance(METADATA_S + UNSEEN_S)
    discovery()
    world.clock.advance(METADATA_S + UNSEEN_S)
    assert discovery.unseen() == ()


def test_a_topic_that_the_cluster_hides_is_hosted_and_one_that_was_deleted_is_not(desk: Desk) -> None:
    world = desk.world
    world.broker.hide_topics(world.name)
    world.clock.advance(METADATA_S)
    hosted = desk.discovery()[world.partition]
    assert (hosted.name, hosted.leads, hosted.barred) == (world.name, True, None)
    for _ in range(10):
        world.clock.advance(METADATA_S)
        desk.discovery()
    assert desk.broker.asked["topic_exists"] == 1
    world.broker.hide_topics()
    world.clock.advance(METADATA_S)
    assert desk.discovery()[world.partition].leads
    world.broker.delete_topic(world.name)
    world.clock.advance(METADATA_S)
    assert world.partition not in desk.discovery()


@pytest.mark.parametrize("name", ["left", "__consumer_offsets"])
def test_a_hidden_topic_that_is_not_to_be_tiered_is_not_hosted(name: str, desk: Desk) -> None:
    world = desk.world
    topic_id = world.broker.create_topic(name)
    world.broker.hide_topics(name)
    add_folder(world, f"{name}-0", topic_id)
    world.clock.advance(METADATA_S)
    assert TopicIdPartition(topic_id, 0) not in desk.discovery()


def test_a_roll_calls_for_its_partition_at_once(desk: Desk) -> None:
    desk.world.file(10_000_000).write_bytes(b"")
    desk.discovery()
    assert desk.called() == [desk.world.partition]


def test_a_partition_that_comes_is_hosted_at_once_however_late_its_id_is_written(desk: Desk) -> None:
    world = desk.world
    topic_id = world.broker.create_topic("late")
    (world.folder.parent / "late-0").mkdir()
    assert TopicIdPartition(topic_id, 0) not in desk.discovery()
    (world.folder.parent / "late-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    assert TopicIdPartition(topic_id, 0) in desk.discovery()
    (world.folder.parent / "late-0").rename(world.folder.parent / f"late-0.{'a' * 32}-stray")
    assert TopicIdPartition(topic_id, 0) not in desk.discovery()


def test_without_hints_the_disks_are_listed_every_half_minute(desk: Desk) -> None:
    world = desk.world
    topic_id = world.broker.create_topic("unheard")
    add_folder(world, "unheard-0", topic_id)
    world.log.touched()  # another reader took the event
    assert TopicIdPartition(topic_id, 0) not in desk.discovery()
    world.clock.advance(DISKS_S)
    assert TopicIdPartition(topic_id, 0) in desk.discovery()


def test_without_events_of_the_system_looks_are_more_frequent(desk: Desk) -> None:
    assert desk.schedule.longest_s == LONGEST_S
    desk.world.log.close()
    add_folder(desk.world, "t-0", TopicId.of(b"topic id of 16 b"))
    desk.world.clock.advance(DISKS_S)
    desk.discovery(), desk.discovery()
    assert desk.schedule.longest_s == BLIND_S


def test_events_while_the_cluster_was_away_are_not_forgotten(desk: Desk) -> None:
    world = desk.world
    desk.broker.refuses = {"topics"}
    world.file(10_000_000).write_bytes(b"")
    world.clock.advance(METADATA_S)
    for _ in range(2):
        with pytest.raises(AccessDenied):
            desk.discovery()
    desk.broker.refuses = set()
    desk.discovery()
    assert desk.called() == [world.partition]


def test_disks_that_could_not_be_listed_are_listed_again_at_once(desk: Desk) -> None:
    folder = desk.world.folder.parent / "bad-0"
    (folder / "partition.metadata").mkdir(parents=True)
    with pytest.raises(Unavailable):
        desk.discovery()
    (folder / "partition.metadata").rmdir()
    assert set(desk.discovery()) == {desk.world.partition}


def test_a_replica_that_moves_to_another_disk_is_followed(world: World, tmp_path: Path) -> None:
    """The broker copies into a ``-future`` folder, then renames both (AlterReplicaLogDirs)."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_text((world.folder.parent / "meta.properties").read_text())
    world.log.close()
    world.log = LogDirs([world.folder.parent, other])
    desk = Desk(world)
    before = world.log.snapshot(world.partition, world.name)
    future = other / f"{world.folder.name}.{'b' * 32}-future"
    future.mkdir()
    for file in world.folder.iterdir():
        (future / file.name).write_bytes(file.read_bytes())
    assert desk.discovery()[world.partition].leads
    desk.called()
    world.folder.rename(world.folder.with_name(f"{world.folder.name}.{'c' * 32}-delete"))
    future.rename(other / world.folder.name)
    assert desk.discovery()[world.partition].leads
    after = world.log.snapshot(world.partition, world.name)
    assert after.folder == other / world.folder.name
    assert [each.base_offset for each in after.segments] == [each.base_offset for each in before.segments]
    (other / world.folder.name / f"{10_000_000:020d}.log").write_bytes(b"")
    desk.called()
    desk.discovery()
    assert desk.called() == [world.partition]
