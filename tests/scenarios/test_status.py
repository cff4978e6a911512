"""``tierstate status``: one table of everything, also from the gateway, with what only agents know."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.house import House, eventually, opened_house
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 600


@pytest.fixture(scope="module")
def house(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with opened_house(kafka, tmp_path_factory.mktemp("status") / "house", "status") as made:
        yield made


def test_one_table_shows_remote_data_savings_and_silent_agents(house: House) -> None:
    calm, paused = (house.create(name, internal_segment_bytes="20000") for name in ("calm", "paused"))
    with house.agent():
        for topic in (calm, paused):
            house.append(topic, RECORDS)
        eventually(lambda: len(house.logs(calm)) == len(house.logs(paused)) == 1)
        house.run("pause", paused)

        def settled() -> list[dict[str, object]] | None:
            rows: list[dict[str, object]] = house.json("status")
            return rows if all(each["copy_lag_segments"] == 0 and each["freed_bytes"] for each in rows) else None

        rows = eventually(settled)
        assert [each["topic"] for each in rows] == [paused, calm], "what waits for somebody stands first"
        assert (rows[1]["trouble"], rows[1]["orders"], rows[1]["copy_lag_bytes"]) == ([], [], 0)
        assert "pause" in str(rows[0]["orders"])
        table = house.run("status").stdout
        assert "order: pause" in table
        gateway, url = house.gateway()
        mine = eventually(lambda: house.json("status", "--gateway", url)[0]["freed_bytes"])
        assert mine == max(int(str(each["freed_bytes"])) for each in rows)
        gateway.stop()
    rows = house.json("status")
    assert {tuple(each["trouble"]) for each in rows} == {("agent silent",)}
    assert {each["copy_lag_bytes"] for each in rows} == {None}, "unknown, and not nothing"
