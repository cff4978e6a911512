"""Disturbances of the cluster, one at a time; each names the effect that must be seen afterwards.

A disturbance gets a random generator of its own, made of the seed and its number alone: the same seed asks for the same
things. It returns a function that tells whether its effect was seen by now. It always leaves everything running.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable

from tests.soak.ground import Ground
from tests.soak.groups import PlainGroup
from tests.soak.journal import partition_of
from tests.soak.topics import EVERYWHERE, PASSING_MS, TOPICS
from tests.soak.truth import jumped

Look = Callable[[], bool]
Act = Callable[[Ground, random.Random], Look]
UNDER_WAY_S = 1.5
"""A trim takes a moment from its listing of groups to DeleteRecords."""
LOOK_EVERY_S, LEFT_BEHIND_S = 15.0, 60.0
QUIET_RECORDS, ALL = 1500, -1
"""``ALL`` is the offset for all records, as in `kafka-delete-records.sh`."""
MAY_DIE = (0, 1)
"""Agents that are killed and terminated; the last lives as long as the soak, so that its memory shows all of it."""
KEPT, PASSING = TOPICS[:2]
ACTS = ("term started", "segment copied", "local trimmed", "log start moved", "segment deleted")


def agent_killed(ground: Ground, chance: random.Random) -> Look:
    index = chance.choice(MAY_DIE)
    _has_work(ground, index, chance)
    time.sleep(chance.uniform(0, 2))
    ground.agents[index].process.send_signal(signal.SIGKILL)
    ground.agents[index].process.wait()
    time.sleep(chance.uniform(0, 3))
    ground.start_agent(index)
    return _new_life_works(ground, index)


def agent_terminated(ground: Ground, chance: random.Random) -> Look:
    index = chance.choice(MAY_DIE)
    _has_work(ground, index, chance)
    time.sleep(chance.uniform(0, 2))
    try:
        code = ground.stop_agent(index)
        assert code == 0, f"agent {index} ended with {code} after SIGTERM"
    finally:
        ground.start_agent(index)
    return _new_life_works(ground, index)


def agent_frozen(ground: Ground, chance: random.Random) -> Look:
    """Freeze an agent until another one leads and copies its partition; then it goes on, without knowing of that."""
    index = chance.choice(EVERYWHERE)
    name, partition = _has_work(ground, index, chance)
    other = (index + chance.choice((1, 2))) % 3
    began = time.monotonic()
    ground.until(lambda: ground.copied(began, name, partition), "the agent to be frozen copies")
    time.sleep(chance.uniform(0, 2))
    ground.agents[index].process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        ground.lead(name, partition, other)
        ground.until(lambda: ground.copied(began, name, partition, other), "another agent copies")
        time.sleep(chance.uniform(0, 3))
    finally:
        resumed = time.monotonic()
        ground.agents[index].process.send_signal(signal.SIGCONT)
    return lambda: bool(ground.heard(resumed, "term ended", name, partition, index))


def broker_killed(ground: Ground, chance: random.Random) -> Look:
    index = chance.choice(EVERYWHERE)
    name, partition = _has_work(ground, index, chance)
    ground.until_in_sync()
    began = time.monotonic()
    ground.kafka.kill(index)
    try:
        ground.until(lambda: ground.admin.leader(name, partition) not in (None, index), "another broker leads")
        time.sleep(chance.uniform(1, 5))
    finally:
        ground.kafka.start(index)
        ground.until_in_sync()
    return lambda: any(ground.copied(began, name, partition, other) for other in EVERYWHERE if other != index)


def leader_moved(ground: Ground, chance: random.Random) -> Look:
    _, name, partition = chance.choice(ground.movable())
    to = (ground.leader(name, partition) + chance.choice((1, 2))) % 3
    began = time.monotonic()
    ground.lead(name, partition, to)
    return lambda: bool(ground.copied(began, name, partition, to))


def replicas_moved(ground: Ground, chance: random.Random) -> Look:
    """Take one replica away, and bring it back empty."""
    _, name, partition = chance.choice(ground.movable())
    leader = ground.leader(name, partition)
    others = [each for each in EVERYWHERE if each != leader]
    chance.shuffle(others)
    try:
        ground.patiently(lambda: ground.admin.reassign(name, partition, [leader, others[0]]))
        time.sleep(chance.uniform(0, 2))
    finally:
        ground.patiently(lambda: ground.admin.reassign(name, partition, [others[1], leader, others[0]]))
    began = time.monotonic()
    ground.lead(name, partition, others[1])  # it leads a partition that it never copied itself
    return lambda: bool(ground.copied(began, name, partition, others[1]))


def store_away(ground: Ground, chance: random.Random) -> Look:
    began = time.monotonic()
    ground.house.store.rename(ground.away)
    try:
        time.sleep(chance.uniform(5, 9))
        ground.until(lambda: ground.journal.since(began, "copy failed"), "a copy fails while the store is away")
    finally:
        made_anew = ground.bring_store_back()
    assert not made_anew, f"the store's folder was made anew while it was away, and has {made_anew}"
    back = time.monotonic()
    return lambda: bool(ground.journal.since(back, "segment copied"))


def tier_leader_moved(ground: Ground, chance: random.Random) -> Look:
    topic, partition = ground.house.tier_topic, chance.randrange(2)
    to = (ground.leader(topic, partition) + chance.choice((1, 2))) % 3
    ground.lead(topic, partition, to)
    began = time.monotonic()
    return lambda: bool(ground.journal.since(began, "segment copied"))


def retention_changed(ground: Ground, chance: random.Random) -> Look:
    """Make retention longer, then as short as before; more stays local for a while."""
    name = ground.full(PASSING)
    longer, local = str(PASSING_MS * chance.choice((2, 5))), str(chance.choice((50_000, 200_000)))
    ground.patiently(lambda: ground.admin.alter(name, retention_ms=longer, local_retention_bytes=local))
    time.sleep(chance.uniform(2, 6))
    began = time.monotonic()
    ground.patiently(lambda: ground.admin.alter(name, retention_ms=str(PASSING_MS), local_retention_bytes="0"))
    return lambda: all(ground.journal.since(began, what, topic=name) for what in ("log start moved", "segment deleted"))


def paused(ground: Ground, chance: random.Random) -> Look:
    name = ground.full(chance.choice(TOPICS))
    ground.commanded("pause", name)
    try:
        ground.until(lambda: "pause" in ground.command("describe", name)[1], "the pause is told")
        time.sleep(chance.uniform(2, 5))
    finally:
        ground.commanded("resume", name)
    began = time.monotonic()
    return lambda: bool(ground.journal.since(began, "segment copied", topic=name))


def stray_swept(ground: Ground, chance: random.Random) -> Look:
    """Put an unknown object: it is shown, never deleted by an agent, and deleted when a person names it."""
    _, name, partition = chance.choice([each for each in ground.movable() if each[0] is not PASSING])
    alive = _objects(ground, name, partition)
    key = f"{alive[0].rpartition('/')[0]}/stray-{chance.randrange(10**6)}"
    ground.cluster.store.put_if_absent(key, b"stray")
    time.sleep(chance.uniform(0, 5))
    shown = ground.command("sweep", name, "--json")
    assert key in shown[1], f"sweep does not show {key}: {shown}"
    ground.commanded("sweep", name, "--execute", "--orphan", key, codes=(0, 1))
    gone = key not in {each.key for each in ground.cluster.store.list(key.rpartition("/")[0])}
    return lambda: gone


def late_landing(ground: Ground, chance: random.Random) -> Look:
    """Put objects that a slow upload lets land after the segment was deleted: only a sweep will look for them."""
    name, partition, store = ground.full(PASSING), chance.randrange(PASSING.partitions), ground.cluster.store
    # readable: the objects of a failed attempt, which landed late by themselves, stay a quarter of an hour
    first = json.loads(ground.command("segments", f"{name}:{partition}", "--json")[1])[0]["object_key"]
    late = {each: store.get(each) for each in _objects(ground, name, partition) if each.startswith(f"{first}.")}

    def gone() -> bool:
        return not late.keys() & {*_objects(ground, name, partition)}

    ground.until(gone, "a segment expires", seconds=2 * PASSING_MS / 1000)
    for key, data in late.items():
        store.put_if_absent(key, data)
    return gone


def group_reset(ground: Ground, chance: random.Random) -> Look:
    """A consumer that read to the end is set back to the earliest, waits, and reads all records written since."""
    name, partition = _just_trimmed(ground)
    group = PlainGroup(ground.kafka.bootstrap, name, partition, f"{name}-back-{chance.randrange(10**6)}")

    try:
        ground.patiently(lambda: group.stand(group.bounds()[1]))
        start = _set_back(ground, group)
        ground.until(lambda: group.bounds()[0] > start or _is_waited_for(ground, group), "an agent waits for the group")
        truth_now = ground.truth.snapshot((name, partition))
        read = group.read_to(truth_now.offsets[-1] + 1)
        lost = [*jumped(truth_now, start, truth_now.offsets[-1] + 1, read)]
        assert not lost, f"{group.group}: {lost[0]}"
        ground.given_to_groups += len(read)
    finally:
        ground.patiently(group.leave)
    return lambda: bool(read)


def group_left_behind(ground: Ground, chance: random.Random) -> Look:
    """One group reads on and another stays where it is, during the next disturbances.

    The returned function raises AssertionError if an agent died, or if a record left the broker before both read it.
    """
    place, number = _just_trimmed(ground), chance.randrange(10**6)
    behind, reader = (
        PlainGroup(ground.kafka.bootstrap, *place, f"{place[0]}-{name}-{number}") for name in ("behind", "reader")
    )
    start = _set_back(ground, behind)
    ground.patiently(lambda: reader.stand(start))
    due, last = time.monotonic() + LOOK_EVERY_S, time.monotonic() + LEFT_BEHIND_S
    standing = start

    def read(group: PlainGroup, since: int) -> int:
        truth_now = ground.truth.snapshot(place)
        end = truth_now.offsets[-1] + 1
        if end <= since:
            return since
        records = group.read_to(end)
        lost = [*jumped(truth_now, since, end, records)]
        assert not lost, f"{group.group}: {lost[0]}"
        ground.given_to_groups += len(records)
        return ground.patiently(lambda: group.stand(end))

    def look() -> bool:
        nonlocal due, standing
        if time.monotonic() < due:
            return False
        dead = ground.agents.keys() - ground.pids().keys()
        assert not dead, f"agents {sorted(dead)} died"
        first = ground.patiently(behind.bounds)[0]
        assert first <= start, f"trimmed to {first}, and {behind.group} has read nothing from {start} on"
        standing = read(reader, standing)
        due = time.monotonic() + LOOK_EVERY_S
        if time.monotonic() < last or not _is_waited_for(ground, behind):
            return False
        read(behind, start)
        for each in (behind, reader):
            ground.patiently(each.leave)
        return True

    return look


def _just_trimmed(ground: Ground) -> tuple[str, int]:
    """Return a partition that is trimmed again before long, and not just now."""
    name, began = ground.full(KEPT), time.monotonic()
    trims = ground.until(lambda: ground.journal.since(began, "local trimmed", topic=name), "a trim")
    return name, partition_of(trims[0])


def _set_back(ground: Ground, group: PlainGroup) -> int:
    """Set the group to the start of the broker's log, again while an older trim is under way; return that offset."""

    def stand() -> int | None:
        at = group.stand(group.bounds()[0])
        time.sleep(UNDER_WAY_S)
        return at if group.bounds()[0] <= at else None

    start = ground.until(stand, "a group is set back", lambda at: at is not None)
    assert start is not None
    return start


def _is_waited_for(ground: Ground, group: PlainGroup) -> bool:
    name, partition = group.place
    code, output = ground.command("describe", f"{name}:{partition}", "--json")
    agent = json.loads(output)[0]["agent"] if code == 0 else None
    return isinstance(agent, dict) and group.group in agent.get("held_by", ())


def nothing(ground: Ground, chance: random.Random) -> Look:
    """Wait a few seconds without a disturbance."""
    began = time.monotonic()
    time.sleep(chance.uniform(3, 8))
    return lambda: bool(ground.journal.since(began, "segment copied"))


def _objects(ground: Ground, name: str, partition: int) -> list[str]:
    keys = (each.key for each in ground.cluster.store.list(""))
    return [each for each in keys if each.startswith(f"{name}-") and f"/{partition}/" in each]


def _has_work(ground: Ground, index: int, chance: random.Random) -> tuple[str, int]:
    """Return a partition that this broker leads; if it leads none, give it one."""
    led = ground.led_by(index)
    if led:
        return chance.choice(led)
    _, name, partition = chance.choice(ground.movable())
    ground.lead(name, partition, index)
    return name, partition


def _new_life_works(ground: Ground, index: int) -> Look:
    life = ground.journal.life(index)
    return lambda: any(each.event == "term started" and each.life == life for each in ground.journal.said)
