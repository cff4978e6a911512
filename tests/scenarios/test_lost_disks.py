"""A broker loses one of two disks: its agent goes on with the other, reports it, and takes it back when it returns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient

from tests.scenarios.house import House, eventually, get
from tierstate.log.broker_folders import NOT_SERVED, BrokerFolders
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.slow
RECORDS = 3_000


def is_in(name: str, here: Path, not_there: Path) -> bool:
    return (here / name).exists() and not (not_there / name).exists()


class TwoDisks:
    """A house whose broker has two disks, with a partition on each."""

    def __init__(self, kafka: KafkaSandbox, folder: Path) -> None:
        self.kafka, self.house = kafka, House(kafka, folder, "disks")
        self.first = self.house.log_dir
        self.second = self.first.with_name("more")
        self.away = self.first.with_name("away")
        text = self.house.config.read_text()
        self.house.config.write_text(text.replace(f'["{self.first}"]', f'["{self.first}", "{self.second}"]'))
        self.house.run("init")
        self.topic = self.house.create("orders", partitions=2)
        self.on_first, self.on_second = 0, 1
        tiers = self.house.tier_topic
        self._put({(self.topic, 0): self.first, (tiers, 0): self.first, (tiers, 1): self.first})
        self._put({(self.topic, 1): self.second})

    def _put(self, wanted: Mapping[tuple[str, int], Path]) -> None:
        client = KafkaAdminClient(bootstrap_servers=self.kafka.bootstrap)
        try:
            client.alter_replica_log_dirs({(*each, 1): str(folder) for each, folder in wanted.items()})
        finally:
            client.close()
        for (topic, number), folder in wanted.items():
            other = self.first if folder == self.second else self.second
            name = f"{topic}-{number}"
            eventually(partial(is_in, name, folder, other))

    def lose(self) -> None:
        """Lose the second disk: its path is no longer a folder."""
        self.second.rename(self.away)
        self.second.write_text("")

    def find(self) -> None:
        self.second.unlink()
        self.away.rename(self.second)

    def restart(self) -> None:
        self.kafka.stop(0)
        self.kafka.start(0)

    def copied(self, number: int) -> int:
        return len([each for each in self.house.manifests(self.topic) if each.parent.name == str(number)])

    def append(self, number: int) -> None:
        self.house.append(self.topic, RECORDS, partition=number)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[TwoDisks]:
    folder = tmp_path / "kafka"
    both = f"{folder / 'broker-1' / 'data'},{folder / 'broker-1' / 'more'}"
    with KafkaSandbox(folder=folder, properties={"log.dirs": both}) as kafka:
        two = TwoDisks(kafka, tmp_path / "house")
        try:
            yield two
        finally:
            two.house.close()


def test_an_agent_runs_with_the_disks_that_its_broker_runs_with(disks: TwoDisks) -> None:
    house = disks.house
    disks.append(disks.on_first)
    disks.append(disks.on_second)
    with house.agent():
        eventually(lambda: disks.copied(disks.on_first) and disks.copied(disks.on_second))
    disks.kafka.stop(0)
    disks.lose()
    disks.kafka.start(0)
    # also for `ExecStartPre`: a lost disk of the broker is no reason not to start
    (folders,) = [row for row in house.json("check") if row["check"] == "log folders"]
    assert folders["ok"]
    assert f"goes on without {disks.second}" in folders["detail"]
    with house.agent() as agent:
        assert agent.says("log folder lost")["folder"] == str(disks.second)
        before = disks.copied(disks.on_first)
        disks.append(disks.on_first)
        eventually(lambda: disks.copied(disks.on_first) > before)
        assert "tierstate_log_folders_lost 1.0" in agent.metrics()
        disks.find()
        assert BrokerFolders([disks.first, disks.second], alone=False).lost == {disks.second: NOT_SERVED}
        assert not agent.events("log folder back")
        disks.restart()
        agent.says("log folder back")
        before = disks.copied(disks.on_second)
        disks.append(disks.on_second)
        eventually(lambda: disks.copied(disks.on_second) > before)
        assert "tierstate_log_folders_lost 0.0" in agent.metrics()


def test_an_agent_goes_on_when_a_disk_fails_under_it(disks: TwoDisks) -> None:
    house = disks.house
    disks.append(disks.on_first)
    disks.append(disks.on_second)
    with house.agent() as agent:
        eventually(lambda: disks.copied(disks.on_first) and disks.copied(disks.on_second))
        disks.lose()
        agent.says("log folder lost")
        before = disks.copied(disks.on_first)
        disks.append(disks.on_first)
        eventually(lambda: disks.copied(disks.on_first) > before)
        (partition,) = house.json("describe", f"{disks.topic}:{disks.on_first}")
        assert partition["agent"]["last_error"] is None


def test_a_disk_that_is_not_in_the_agent_s_settings_is_missed(disks: TwoDisks) -> None:
    house = disks.house
    one = json.dumps([str(disks.first)])
    missed = f"{disks.topic}-{disks.on_second}"
    (folders,) = [row for row in house.json("check", "--set", f"agent.log_dirs={one}", code=1) if not row["ok"]]
    assert folders["check"] == "log folders"
    assert missed in folders["detail"]
    with house.agent("--set", f"agent.log_dirs={one}") as agent:
        management = agent.says("agent ready")["management"]

        def told() -> bool:
            status, body = get(f"http://{management}/readyz")
            return status == 503 and missed.encode() in body

        eventually(told, 100)
        assert "tierstate_partitions_not_seen 1.0" in agent.metrics()
