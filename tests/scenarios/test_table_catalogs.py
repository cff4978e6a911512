"""`tierstate table` with a catalog server, as the settings name it: secrets by reference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.lake.catalogs import of_glue, on_s3, rest_on_s3, s3_and_glue
from tests.scenarios.house import House, eventually
from tierstate.lake.table_catalog import LakeCatalog
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 2_000


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with s3_and_glue() as endpoint:
        yield endpoint


@pytest.fixture(params=["rest", "glue"])
def catalog(request: pytest.FixtureRequest, moto: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    if request.param == "glue":
        yield of_glue(moto)
        return
    with rest_on_s3(moto, tmp_path / "rest") as server:
        yield {"type": "rest", "uri": server.url, **on_s3(moto)}


@pytest.fixture
def house(
    kafka_own: KafkaSandbox, catalog: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[House]:
    new_house = House(kafka_own, tmp_path / "house", f"cat-{catalog['type']}")
    secret = tmp_path / "secret"
    secret.write_text("test")
    lines = [
        f'"{name}" = {{ file = "{secret}" }}' if name.endswith("secret-access-key") else f'"{name}" = "{value}"'
        for name, value in catalog.items()
    ]
    with new_house.config.open("a") as settings:
        settings.write("[catalog]\n" + "\n".join(lines) + "\n")
    new_house.run("init")
    try:
        yield new_house
    finally:
        new_house.close()


def test_every_verb_works_with_a_catalog_that_is_a_server(house: House, catalog: dict[str, str]) -> None:
    topic = house.create("orders", 2)
    for partition in (0, 1):
        house.append(topic, RECORDS, partition)
    [made] = house.json("table", "create", topic)
    name = str(made["table"])
    with house.agent():
        eventually(lambda: all(each["local_log_start_offset"] > 0 for each in house.json("describe", topic)))
        [remote] = house.json("table", "follow", "--once")
        [rest] = house.json("table", "follow", "--once", "--local")
        assert remote["rows"] + rest["rows"] == 2 * RECORDS
        checked = house.json("table", "check", name, "--local")
        assert not checked["findings"]
        assert [(each["partition"], each["rows"], each["digest"]) for each in checked["partitions"]] == house.digests(
            topic
        )
        assert house.json("table", "compact", name, "--execute")["commits"] == 1
        assert not house.json("table", "check", name, "--local")["findings"]
    with closing(LakeCatalog(catalog)) as opened:
        assert opened.table(name).count("partition == 1") == RECORDS
    assert [each["table"] for each in json.loads(house.run("table", "list", "--json").stdout)] == [name]
    house.run("table", "drop", name, "--execute")
    assert name not in house.run("table", "list").stdout
