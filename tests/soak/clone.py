"""A copy of the whole cluster, with its agents' state folders, that starts with the same bucket."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.scenarios.copied_cluster import CopyOf
from tests.scenarios.house import Running
from tests.scenarios.story_kafka import ClusterAdmin
from tests.servers.frozen_broker import freeze, thaw
from tests.soak.disturbances import Look
from tests.soak.ground import Ground
from tests.soak.log_disturbances import sweep_orphans
from tests.soak.topics import EVERYWHERE, TOPICS


def cluster_copied(ground: Ground, chance: random.Random) -> Look:
    """Copy all disks at one moment. In the copy each topic keeps one segment only.

    One of its agents runs until both sides report the copy; then a person keeps the prefix for the cluster.
    """
    index, folder = chance.choice(EVERYWHERE), ground.folder / f"copy-{time.monotonic_ns()}"
    disks = [folder / f"disk-{each}" for each in EVERYWHERE]
    with _standing_still(ground):
        for each, disk in enumerate(disks):
            shutil.copytree(ground.kafka.brokers[each].log_dir, disk, ignore=shutil.ignore_patterns(".lock"))
        shutil.copytree(ground.folder / f"agent-{index}", folder / "agent")
    copy = CopyOf(disks, ground.kafka.cluster_id, folder / "kafka")
    try:
        copy.open()
        admin = ClusterAdmin(copy)
        for topic in TOPICS:
            ground.patiently(partial(admin.alter, ground.full(topic), retention_bytes="1"))
        flags = [f"kafka.bootstrap.servers={copy.bootstrap}", f"agent.log_dirs={copy.brokers[index].log_dir}"]
        flags += [f"state_dir={folder / 'agent'}", "expire.grace=0s", "sweep.grace=0s"]
        agent = ground.house.start("agent", *(part for flag in flags for part in ("--set", flag)))
        sides = [agent, *ground.agents.values()]
        ground.until(lambda: all(map(_is_contested, sides)), "both sides say that a copy runs")
        time.sleep(chance.uniform(0, 10))
        ground.commanded("keep-prefix", "--execute")
        agent.stop(chance.choice((signal.SIGTERM, signal.SIGKILL)))
        ground.until(lambda: not any(map(_is_contested, ground.agents.values())), "agents have the prefix again")
    finally:
        copy.close()
        shutil.rmtree(folder)
    sweep_orphans(ground)  # objects that the copy had copied before it was found
    began = time.monotonic()
    return lambda: all(ground.copied(began, name, partition) for _, name, partition in ground.places())


@contextmanager
def _standing_still(ground: Ground) -> Iterator[None]:
    for each in EVERYWHERE:
        freeze(ground.kafka, each)
    for agent in ground.agents.values():
        agent.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for each in EVERYWHERE:
            thaw(ground.kafka, each)
        for agent in ground.agents.values():
            agent.process.send_signal(signal.SIGCONT)


def _is_contested(agent: Running) -> bool:
    return "tierstate_prefix_contested 1.0" in agent.metrics()
