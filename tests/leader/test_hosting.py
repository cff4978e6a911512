"""The partitions that an agent takes for its own: on these disks, in this cluster, of this very topic, and included."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from tests.leader.world import World
from tests.twins.counting_ids import CountingIds
from tierstate.leader.discovery import Hosted
from tierstate.leader.open import Parts, hosted_partitions, open_leader
from tierstate.leader.schedule import Schedule
from tierstate.rules.reasons import Reason
from tierstate.runtime.settings import Settings
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import Unavailable
from tierstate.state.ids import TopicIdPartition


def hosted(world: World, **tiering: list[str]) -> Mapping[TopicIdPartition, Hosted]:
    settings = Settings.model_validate({"tiering": {"include": [".*"], **tiering}})
    schedule = Schedule(world.clock, lambda partition: 0)
    return hosted_partitions(settings, world.process().context, schedule)()


def add_folder(world: World, name: str, topic_id: object) -> None:
    folder = world.folder.parent / name
    folder.mkdir()
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


def test_a_partition_on_these_disks_is_hosted_and_led_or_not(world: World) -> None:
    assert hosted(world) == {world.partition: Hosted(world.name, True, epoch=LeaderEpoch(0))}
    world.broker.elect(world.name, 0, 2)
    assert hosted(world) == {world.partition: Hosted(world.name, False)}
    world.broker.elect(world.name, 0, None)
    assert hosted(world) == {world.partition: Hosted(world.name, False)}


def test_patterns_choose_and_exclusion_wins(world: World) -> None:
    assert hosted(world, include=[]) == {}
    assert hosted(world, include=["gold"]) == {}
    assert hosted(world, include=["gold.*"], exclude=[".*none"]) == {}


@pytest.mark.parametrize("name", ["__consumer_offsets", "_tier-state"])
def test_internal_topics_are_hosted_only_where_the_patterns_name_them_and_to_be_refused(
    name: str, world: World
) -> None:
    topic_id = world.broker.create_topic(name)
    add_folder(world, f"{name}-0", topic_id)
    barred = hosted(world)[TopicIdPartition(topic_id, 0)].barred
    assert barred is not None
    assert barred.kind is Reason.REFUSED_INTERNAL
    assert set(hosted(world, include=[world.name])) == {world.partition}


def test_a_folder_of_an_earlier_topic_of_the_same_name_is_not_hosted(world: World) -> None:
    world.broker.delete_topic(world.name)
    world.broker.create_topic(world.name)
    assert hosted(world) == {}


@pytest.mark.parametrize("suffix", ["delete", "stray", "future"])
def test_folders_that_the_broker_retired_are_not_hosted(suffix: str, world: World) -> None:
    topic_id = world.broker.create_topic("orders")
    add_folder(world, f"orders-0.{'a' * 32}-{suffix}", topic_id)
    assert set(hosted(world)) == {world.partition}
    add_folder(world, "orders-0", topic_id)
    assert set(hosted(world)) == {world.partition, TopicIdPartition(topic_id, 0)}


def test_a_disk_that_cannot_be_listed_is_an_error_and_not_an_empty_disk(world: World) -> None:
    (world.folder / "partition.metadata").unlink()
    (world.folder / "partition.metadata").mkdir()
    with pytest.raises(Unavailable, match="cannot be read"):
        hosted(world)


def opened(world: World) -> Any:
    process = world.process()
    return open_leader(
        Settings.model_validate({"tiering": {"include": [".*"]}, "trim": {"delay": 0}}),
        world.log,
        Parts(world.broker, world.topic, process.view, world.store, world.clock, CountingIds(7)),
        process.events.append,
        "b1:1",
    )


def test_an_opened_agent_works(world: World) -> None:
    opened(world).agent.run_once(threading.Event())
    assert world.local_start() == world.bases[-1]
