"""A few damages, read by real commands with a broker that has the rest of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.consumer.test_damaged_objects import log_object, tiered
from tests.consumer.tiered_cluster import TieredCluster
from tests.damage.segments import batch_positions
from tierstate.cli.main import run
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 400
CORRUPT = 4


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredCluster:
    return TieredCluster(kafka, tmp_path_factory.mktemp("damage"), "_tier-state-damage")


def flipped(data: bytes, other: bytes) -> bytes:
    at = batch_positions(data)[1] + 200
    return data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :]


def moved(data: bytes, other: bytes) -> bytes:
    at = batch_positions(data)[-1] + 7
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def cut(data: bytes, other: bytes) -> bytes:
    return data[: len(data) // 2]


def swapped(data: bytes, other: bytes) -> bytes:
    return other


DAMAGES = {change.__name__: change for change in (flipped, moved, cut, swapped)}


@pytest.mark.parametrize("name", DAMAGES)
def test_commands_refuse_damage_by_name(
    name: str, cluster: TieredCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = tiered(cluster, f"commands-{name}", RECORDS, 2)
    damaged = log_object(cluster, topic, 1)
    whole, other = damaged.read_bytes(), log_object(cluster, topic, 0).read_bytes()
    place = f"file://{tmp_path}/export"
    (tmp_path / "export").mkdir()
    commands: dict[str, list[str]] = {
        "consume": ["consume", f"{topic}:1"],
        "digest": ["digest", f"{topic}:1"],
        "export": ["export", topic, "--into", place],
        "verify": ["verify", topic, "--level", "3"],
    }

    def ended(command: str, *more: str) -> tuple[int, str]:
        capfd.readouterr()
        code = run([*commands[command], *more, "--config", str(cluster.settings_file)])
        return code, "".join(capfd.readouterr())

    assert {command: ended(command)[0] for command in commands} == dict.fromkeys(commands, 0)
    damaged.write_bytes(DAMAGES[name](whole, other))
    for command, more in (("consume", ()), ("digest", ()), ("export", ("--check",)), ("verify", ())):
        code, text = ended(command, *more)
        assert (command, code) == (command, CORRUPT), text
        assert damaged.name.removesuffix(".log") in text
    damaged.write_bytes(whole)
    assert ended("export", "--check")[0] == 0
