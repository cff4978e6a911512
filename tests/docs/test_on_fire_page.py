"""Symptoms of `docs/on-fire.md`, made for real: the page's commands are typed, and in the end all is healthy."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.docs.blocks import Block, executed
from tests.docs.page_shell import PageShell, types
from tests.scenarios.house import Done, House, Running, eventually, opened_house
from tests.scenarios.test_drill import deleted
from tests.scenarios.test_rescue import ALL_STAYS, copied
from tierstate.broker.open import open_broker
from tierstate.broker.tier_topic_setup import TierTopicSpec, open_tier_topic
from tierstate.runtime.id_source import RandomIds
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import encode_fact
from tierstate.state.facts import IntegrityHold
from tierstate.state.ids import BrokerId, FactId, TopicIdPartition
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import TimestampMs

pytestmark = [pytest.mark.kafka, pytest.mark.extended, pytest.mark.timeout(900)]

BLOCKS = executed("docs/on-fire.md", __file__)
RECORDS = 2_500


def block(heading: str) -> Block:
    """Return the block of the section with this title."""
    (match,) = [block for block in BLOCKS if block.heading == heading]
    return match


@dataclass
class Fire:
    """A topic ``orders`` of some segments, of which nothing is copied, and a shell for the page's commands."""

    house: House
    shell: PageShell
    topic: str

    def types(self, heading: str, *codes: int) -> list[Done]:
        """Type the commands of a section, which must end with these codes, or with 0."""
        typed = block(heading)
        return types(self.shell, typed, dict(zip(typed.commands(), codes, strict=False)))

    def copies_all(self) -> list[tuple[int, int, str]]:
        """Let an agent copy and trim everything that is rolled. Return the digests of the whole log."""
        self.house.run("agent", "--once")
        eventually(lambda: len(self.house.logs(self.topic)) == 1)
        return self.house.digests(self.topic)

    def is_out(self, whole: list[tuple[int, int, str]], code: int = 0) -> None:
        """Check the end of the page: nothing is lost, and a running agent has nothing to report."""
        with self.house.agent() as agent:
            self.agent_is(agent)
            eventually(lambda: self.shell.type("curl -s -f http://BROKER-1:9404/readyz").returncode == 0)
            self.types("After the fire", code)
            described = self.house.run("describe", self.topic)
            assert not re.search(r"^ +(FACTS LOST|HELD|GAP|MISSING|ORDER)", described.stdout, re.M), described.stdout
        assert self.house.digests(self.topic) == whole

    def agent_is(self, agent: Running) -> None:
        self.shell.meant["BROKER-1:9404"] = str(agent.says("agent ready")["management"])


@pytest.fixture
def fire(kafka: KafkaSandbox, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fire]:
    name = "fire-" + request.node.name.removeprefix("test_").replace("_", "-")[:30].strip("-")
    with burning(kafka, tmp_path, name) as opened:
        yield opened


@contextmanager
def burning(kafka: KafkaSandbox, folder: Path, name: str, local_bytes: str = "0") -> Iterator[Fire]:
    with opened_house(kafka, folder / "house", name) as house:
        topic = house.create("t", local_retention_bytes=local_bytes)
        house.append(topic, RECORDS)
        meant = {"orders": topic, "HOST:PORT": kafka.bootstrap, "/var/lib/kafka": str(house.log_dir)}
        variables = {"TIERSTATE_CONFIG": str(house.config)}
        with closing(PageShell(folder / "shell", meant, variables, forks=True)) as shell:
            yield Fire(house, shell, topic)


def test_every_block_is_typed_by_one_of_these_tests() -> None:
    text = Path(__file__).read_text()
    for block in BLOCKS:
        assert f'("{block.heading}"' in text, block


def test_data_is_about_to_expire_because_somebody_paused_the_topic(fire: Fire) -> None:
    house, shell, topic = fire.house, fire.shell, fire.topic
    whole = house.digests(topic, "--via", "broker")
    house.run("pause", topic)
    with house.agent() as agent:
        fire.agent_is(agent)
        eventually(lambda: "not copied    pause ordered" in house.run("describe", topic).stdout)
        fire.types("The first minute")
        *_, described = fire.types("Data is about to expire uncopied")
        assert "pause ordered" in described.stdout
        assert shell.type("tierstate resume orders").returncode == 0
        eventually(lambda: len(house.logs(topic)) == 1)
        fire.types("A broker's disk fills")
        fire.types("Readers fail")
        fire.types("The store is away")
    fire.is_out(whole)


def test_no_agent_answers(fire: Fire) -> None:
    house, topic = fire.house, fire.topic
    with house.agent() as agent:
        fire.agent_is(agent)
        eventually(lambda: len(house.logs(topic)) == 1)
        agent.stop(signal.SIGKILL)
    house.append(topic, RECORDS, first=RECORDS)
    whole = house.digests(topic)
    fire.types("No agent answers", 7, 7)
    assert "did not answer" in house.run("describe", topic, code=0).stdout
    with house.agent() as agent:  # "nothing at all: start the agent"
        fire.agent_is(agent)
        eventually(lambda: len(house.logs(topic)) == 1)
        health, *_ = fire.types("No agent answers")
        assert "not" not in health.stdout
        fire.types("The clock is wrong")
    fire.is_out(whole)


def test_the_tier_state_topic_is_gone_and_its_facts_are_lost(fire: Fire) -> None:
    house, shell = fire.house, fire.shell
    whole = fire.copies_all()
    deleted(house, house.tier_topic)
    shutil.rmtree(house.folder / "state")
    checked, planned, begun = fire.types("The tier-state topic is gone", 1, 0, 2)
    assert "does not exist" in checked.stdout
    assert "to be written" in planned.stdout
    assert "does not exist" in begun.stderr
    house.run("init")
    assert "FACTS LOST" in house.run("describe", fire.topic, code=4).stdout
    (plan,) = fire.types("Facts are lost")
    assert "to be written" in plan.stdout
    done = shell.type("tierstate recover orders:0 --execute --agents-are-stopped")
    assert done.returncode == 0, done
    assert shell.type("tierstate keep-prefix --execute").returncode == 0
    fire.is_out(whole)


def test_an_object_is_missing(fire: Fire, tmp_path: Path) -> None:
    whole = fire.copies_all()
    lost = sorted(fire.house.store.rglob("*.log"))[0]
    lost.rename(tmp_path / "a-version-of-the-bucket")
    _, verified, *_ = fire.types("Data is missing", 0, 4, 0, 1)
    assert "the object is missing" in verified.stdout
    (tmp_path / "a-version-of-the-bucket").rename(lost)
    assert fire.shell.type("tierstate resume orders").returncode == 0
    fire.is_out(whole)


def test_records_are_gone_and_a_person_accepts_it(fire: Fire) -> None:
    house, topic = fire.house, fire.topic
    fire.copies_all()
    first = house.json("describe", f"{topic}:0")[0]["highest_remote_offset"] + 1
    house.append(topic, RECORDS, first=RECORDS)
    cut = int(house.logs(topic)[-1].stem)
    admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
    place = TopicPartition(topic, 0, cut)
    admin.delete_records([place])[place].result(30)
    assert "GAP" in house.run("describe", topic, code=4).stdout
    house.run("consume", f"{topic}:0", code=4)
    fire.shell.meant |= {"--from 41": f"--from {first}", "--to 44": f"--to {cut - 1}"}
    fire.types("Accept a gap")
    accept = block("Accept a gap").commands()[1]
    done = fire.shell.type(f"{accept} --execute")
    assert done.returncode == 0, done
    read = house.run("consume", f"{topic}:0", "--format", "%o\\n").stdout.split()
    assert [int(number) for number in read] == [*range(first), *range(cut, 2 * RECORDS)]
    fire.is_out(house.digests(topic), 1)


def test_a_partition_is_held(fire: Fire) -> None:
    whole = fire.copies_all()
    hold = holds(fire)
    assert "HELD" in fire.house.run("describe", fire.topic).stdout
    *_, released = fire.types("A partition is in doubt")
    assert hold in released.stdout
    assert fire.shell.type(f"tierstate release orders:0 {hold} --execute").returncode == 0
    fire.is_out(whole)


def holds(fire: Fire) -> str:
    """Write a hold, as an agent that saw a second value under one key does. Return the id of the hold."""
    config, now = fire.house.kafka.client_config, TimestampMs(int(time.time() * 1000))
    with open_broker(config) as broker:
        partition = TopicIdPartition(broker.control.topic(fire.topic).topic_id, 0)
    id = FactId.of(RandomIds().uuid())
    hold = IntegrityHold(partition, id, BrokerId(1), "two values", '{"a":1}', '{"a":2}', now)
    with closing(open_tier_topic(config, TierTopicSpec(fire.house.tier_topic, 2, 1))) as facts:
        facts.append(tier_partition_of(partition, 2), key_of(hold), encode_fact(hold))
    return str(id)


def test_a_broker_is_down_because_its_disk_is_full(tmp_path: Path) -> None:
    with KafkaSandbox() as kafka, burning(kafka, tmp_path, "disk", ALL_STAYS) as fire:
        house = fire.house
        with house.agent():
            eventually(lambda: copied(house, fire.topic))
        whole, segments = house.digests(fire.topic), len(house.logs(fire.topic))
        kafka.kill(0)
        fire.types("The disk is full, and the broker is down")
        assert len(house.logs(fire.topic)) == segments, "it only looks"
        fire.shell.type("tierstate rescue /var/lib/kafka --free 20GiB --execute")
        assert len(house.logs(fire.topic)) == 1
        kafka.start(0)
        fire.is_out(whole)
