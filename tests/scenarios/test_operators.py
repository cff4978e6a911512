"""Operators' changes of the log: Kafka's own DeleteRecords, ours, shorter retention, idle topics, and a bucket that
others use too."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.leader.real import eventually
from tests.scenarios.house import House
from tests.scenarios.story import Effect, Story, observes, telling
from tests.scenarios.story_agents import StoryAgent
from tests.scenarios.story_kafka import ClusterAdmin
from tierstate.runtime.listener import OrphansFound
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.facts import OrderKind

pytestmark = pytest.mark.kafka

GOLDEN = Path(__file__).parents[1] / "data" / "aiven" / "plain"
MINUTE_MS = 60_000
GRACE_S = 4.0
"""Twice what a copy may take."""


@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_delete_records_on_the_broker_deletes_nothing_remote_and_is_all_readable_as_before(story: Story) -> None:
    given, when, then = story
    given.topic("orders", per_segment=5, local_retention_bytes="1200").with_records(31)
    when.agent(0).works()
    then.remote("orders").holds(0, 29)
    local = then.log("orders").bounds.local_start
    assert 0 < local < 27
    when.operator_deletes_records("orders", 27)
    when.agent(0).works()
    then.log("orders").starts_at(0)
    then.remote("orders").holds(0, 29)
    then.reader("orders").reads_from(0, total=31, remote=27)
    then.observed(Effect.CONDEMNED, 0)


@observes(Effect.COPIED, Effect.DELETED, Effect.LOG_START_MOVED, Effect.REMOTE_READ, Effect.READ_REFUSED)
def test_delete_records_of_ours_moves_both_tiers_to_exactly_that_offset(story: Story) -> None:
    given, when, then = story
    given.topic("orders", per_segment=5, local_retention_bytes="1200").with_records(31)
    when.agent(0).works()
    local = then.log("orders").bounds.local_start
    when.orders("orders", OrderKind.DELETE_RECORDS, before=7)
    when.agent(0).works()
    then.log("orders").starts_at(7)
    then.remote("orders").has_segments_from(5, 10, 15, 20, 25)
    then.reader("orders").reads_from(7, total=24, remote=local - 7).is_refused(6)
    when.orders("orders", OrderKind.DELETE_RECORDS, before=28)
    when.agent(0).works()
    then.log("orders").starts_at(28)
    assert then.log("orders").bounds.local_start == 28
    then.remote("orders").has_segments_from(25)
    then.reader("orders").reads_from(28, total=3, remote=0).is_refused(27)


@observes(Effect.COPIED, Effect.DELETED, Effect.LOG_START_MOVED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_retention_shortened_to_minutes_takes_what_is_older_and_nothing_else(story: Story) -> None:
    given, when, then = story
    now = int(time.time() * 1000)
    given.topic("orders", per_segment=5)
    when.produces("orders", 10, at_ms=now - 30 * MINUTE_MS).produces("orders", 11, at_ms=now - 2 * MINUTE_MS)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 5, 10, 15)
    when.config_changes("orders", retention_ms=str(10 * MINUTE_MS)).agent_dies(0)
    when.agent(0).works()
    then.observed(Effect.DELETED, 2)
    then.remote("orders").has_segments_from(10, 15).holds(10, 19)
    then.log("orders").starts_at(10)
    then.reader("orders").reads_from(10, total=11, remote=10).is_refused(9)


@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_a_segment_rolled_by_time_is_copied_from_a_topic_that_is_idle_since(story: Story) -> None:
    """The broker rolls, not the agent: it does so when the next record arrives after `segment.ms`."""
    given, when, then = story
    given.topic("orders", per_segment=1000, segment_ms="1000").with_records(5)
    when.produces("orders", 1, at_ms=int(time.time() * 1000))
    when.agent(0).works()
    then.remote("orders").has_segments_from(0).holds(0, 4)
    then.local("orders").starts_at(5)
    then.reader("orders").reads_from(0, total=6, remote=5)


def kept_in(store: Path) -> dict[str, bytes]:
    """Return every object by key; the archive is left out."""
    files = (
        path
        for path in store.rglob("*")
        if path.is_file() and not {"_tierstate", "_tierstate_backup"} & set(path.parts)
    )
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


def looks_twice_for_orphans(agent: StoryAgent, objects: int) -> None:
    """Look twice, a grace apart, so that condemned objects are deleted. ``objects``: those that no fact names."""

    def looks() -> list[OrphansFound]:
        agent.turn()
        return [each for each in agent.job.events if isinstance(each, OrphansFound)]

    before = len(looks())
    eventually(lambda: len(looks()) >= before + 3, 60)
    agent.works()
    assert {each.objects for each in looks()[before:]} == {objects}
    assert {each.condemned for each in looks()[before:]} == {0}


@observes(Effect.COPIED, Effect.DELETED, Effect.ORPHANS_LOOKED_FOR, Effect.REMOTE_READ)
def test_objects_of_kafkas_plugin_in_the_same_bucket_are_never_touched(story: Story) -> None:
    """Their names are alike, even in this very partition's folder; only a fact condemns, and no fact names them."""
    given, when, then = story
    given.settings(sweep={"grace": GRACE_S})
    given.topic("orders", per_segment=5).with_records(16)
    when.agent(0).works()
    store = story.cluster.store_folder
    ours = then.remote("orders").objects()
    theirs = [path for path in GOLDEN.rglob("*") if path.suffix in (".log", ".indexes", ".rsm-manifest")]
    assert len(theirs) == 3
    for path in theirs:
        shutil.copy(path, (store / ours[0]).parent / path.name)
    shutil.copytree(GOLDEN, store / "plugin")
    foreign = {key: value for key, value in kept_in(store).items() if key not in ours}
    when.orders("orders", OrderKind.DELETE_RECORDS, before=10)
    when.agent(0).works()
    looks_twice_for_orphans(when.agent(0), len(theirs))
    left = kept_in(store)
    assert {key for key in ours if key in left} == {key for key in ours if f"{10:020d}" in key}
    assert {key: left.get(key) for key in foreign} == foreign
    then.reader("orders").reads_all()


@pytest.mark.slow
@observes(Effect.COPIED, Effect.DELETED, Effect.ORPHANS_LOOKED_FOR, Effect.REMOTE_READ)
def test_two_clusters_share_a_bucket_and_topic_names_and_never_touch_each_others_objects(
    story: Story, kafka_own: KafkaSandbox, tmp_path: Path
) -> None:
    """Copies of the other's objects are also in this partition's own folder: still no fact of ours names them."""
    with telling(kafka_own, tmp_path / "second", "second") as second:
        second.cluster.store_folder = store = story.cluster.store_folder
        second.declared = (Effect.COPIED, Effect.DELETED, Effect.REMOTE_READ)
        for each in (story, second):
            each.given.settings(sweep={"grace": GRACE_S}, tiering={"include": [".*-shared"]})
            each.given.topic("orders", per_segment=5, name="shared-shared").with_records(16)
            each.when.agent(0).works()
        first_keys, second_keys = (each.then.remote("orders").objects() for each in (story, second))
        assert not {*first_keys} & {*second_keys}
        for key in second_keys:
            shutil.copy(store / key, (store / first_keys[0]).parent)
        foreign = {key: value for key, value in kept_in(store).items() if key not in first_keys}
        story.when.orders("orders", OrderKind.DELETE_RECORDS, before=10)
        story.when.agent(0).works()
        looks_twice_for_orphans(story.when.agent(0), len(second_keys))
        story.then.remote("orders").has_segments_from(10)
        assert {key: kept_in(store).get(key) for key in foreign} == foreign
        second.then.reader("orders").reads_all()
        second.when.orders("orders", OrderKind.DELETE_RECORDS, before=10)
        second.when.agent(0).works()
        story.then.reader("orders").reads_all()
        second.check()


@pytest.mark.slow
def test_what_an_operator_deleted_on_the_broker_is_reported_with_the_command_that_extends_it(
    kafka: KafkaSandbox, tmp_path: Path
) -> None:
    house = House(kafka, tmp_path / "house", "cut")
    try:
        house.run("init")
        topic = house.create("orders", local_retention_bytes="300000")
        house.append(topic, 6_000)
        house.run("agent", "--once")
        (before,) = house.json("describe", f"{topic}:0")
        assert before["cut_elsewhere"] is None
        cut = before["local_log_start_offset"] + 100
        assert cut < before["highest_remote_offset"]
        ClusterAdmin(kafka).delete_records(topic, 0, cut)
        house.run("agent", "--once")
        (after,) = house.json("describe", f"{topic}:0")
        assert after["cut_elsewhere"] == (
            f"the broker begins at {cut}, above our newest trim {before['local_log_start_offset']}: by Kafka's own "
            "retention, by tierstate rescue, by a trim whose fact was lost, or by DeleteRecords of an operator; "
            "readers get the records below from the remote tier. Only if an operator meant to delete them for good: "
            f"tierstate delete-records {topic}:0 --before {cut} --execute"
        )
        assert after["log_start_offset"] == 0
        assert after["remote_segments"] == before["remote_segments"]
        shown = house.run("describe", topic).stdout
        assert f"CUT ELSEWHERE  {after['cut_elsewhere']}" in shown
        command = after["cut_elsewhere"].rpartition("good: tierstate ")[2].split()
        with house.agent("--set", "expire.grace=0s") as agent:
            gauge = f'tierstate_cut_elsewhere_offsets{{partition="0",topic="{topic}"}} '
            eventually(lambda: f"{gauge}100.0" in agent.metrics())
            house.run(*command)
            eventually(lambda: house.json("describe", f"{topic}:0")[0]["log_start_offset"] == cut)
            eventually(lambda: f"{gauge}0.0" in agent.metrics())
        assert house.json("describe", f"{topic}:0")[0]["cut_elsewhere"] is None
    finally:
        house.close()
