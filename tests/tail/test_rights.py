"""An agent that copies by Fetch works under exactly the documented rights, and reports each one that it lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclPermissionType

from tests.broker.guarded import PASSWORDS, binding, denied
from tests.broker.roles import INIT
from tests.scenarios.house import House, eventually, run
from tests.scenarios.test_acls import permit
from tests.tail.test_leaders_that_move import FetchHouse
from tierstate.broker.acls import TO_FETCH, TO_TRIM, Right, rights_of_agent
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
ARCHIVE = ("--set", "trim.enabled=false")


@pytest.fixture(scope="module")
def house(tls_kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FetchHouse]:
    made = FetchHouse(tls_kafka, tmp_path_factory.mktemp("rights") / "house", "fetch-rights")
    try:
        topic = f"{made.name}-orders"
        permit(made, "operator", INIT, topic)
        permit(made, "agent", rights_of_agent(trims=False, fetches=True), topic)
        assert made.create("orders") == topic
        operator = made.as_user("operator", PASSWORDS["operator"])
        eventually(lambda: run("init", "--config", str(operator.config)).returncode == 0)
        yield made
    finally:
        made.close()


def agent_of(house: FetchHouse) -> House:
    return house.as_user("agent", PASSWORDS["agent"])


def rights_row(house: FetchHouse, code: int, *flags: str) -> str | None:
    """Return what `check` reports about the agent's rights, if it ended with this code."""
    done = run("check", "--json", "--config", str(agent_of(house).config), *flags)
    (row,) = [each for each in json.loads(done.stdout) if each["check"] == "rights"]
    return str(row["detail"]) if done.returncode == code else None


def test_an_archive_is_copied_without_a_right_to_delete_or_to_see_other_groups(house: FetchHouse) -> None:
    topic = f"{house.name}-orders"
    assert eventually(lambda: rights_row(house, 0, *ARCHIVE)).startswith("all that an agent needs")
    house.append(topic, 2_000)
    with agent_of(house).agent(*ARCHIVE):
        eventually(lambda: house.manifests(topic))


def test_trimming_needs_more_rights_and_check_names_them(house: FetchHouse) -> None:
    text = eventually(lambda: rights_row(house, 1))
    for right in TO_TRIM:
        assert (
            f"{right.operation.name} on {right.resource.pattern(house.tier_topic, f'{house.name}-orders')[1]}" in text
        )


@pytest.mark.parametrize("right", TO_FETCH, ids=lambda right: f"{right.resource.name}-{right.operation.name}")
def test_check_names_the_right_that_fetching_lacks_and_the_command_that_adds_it(
    right: Right, house: FetchHouse
) -> None:
    kind, name = right.resource.pattern(house.tier_topic, f"{house.name}-orders")
    with denied(house.kafka, binding("agent", kind, name, right.operation, AclPermissionType.DENY)):
        text = eventually(lambda: rights_row(house, 1, *ARCHIVE))
    assert f"{right.operation.name} on {name}: {right.why}" in text
    assert f"--operation {right.typed} --{kind.name.lower()} '{name}'" in text
    assert eventually(lambda: rights_row(house, 0, *ARCHIVE))


def test_with_the_rights_to_trim_it_trims(house: FetchHouse) -> None:
    topic = f"{house.name}-orders"
    permit(house, "agent", rights_of_agent(trims=True, fetches=True), topic)
    assert eventually(lambda: rights_row(house, 0)).startswith("all that an agent needs")
    operator = house.as_user("operator", PASSWORDS["operator"])
    with agent_of(house).agent():
        house.append(topic, 2_000, first=2_000)
        eventually(lambda: operator.json("describe", f"{topic}:0")[0]["local_log_start_offset"] > 0)
