"""Every broker is down: remote records are still read, by the view as it is; brokers' own knowledge is not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.scenarios.house import House, eventually
from tests.servers.frozen_broker import freeze, thaw
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 600


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder: Path = tmp_path_factory.mktemp("dark")
    with KafkaSandbox() as sandbox:
        made = House(sandbox, folder / "house", "dark")
        try:
            made.run("init")
            yield made
        finally:
            made.close()


def pages(client: httpx.Client, path: str, end: int) -> tuple[list[str], list[httpx.Response]]:
    """Return the lines up to ``end``, and the answers in which they came."""
    lines: list[str] = []
    answers: list[httpx.Response] = []
    following = 0
    while following < end:
        answers.append(client.get(path, params={"offset": following, "tier": "remote", "max_bytes": 20_000}))
        assert answers[-1].status_code == 200, answers[-1].text
        lines += answers[-1].text.splitlines()
        following = int(answers[-1].headers["x-next-offset"])
    return lines, answers


def not_ready(management: str) -> str:
    """Return why /readyz is not ready; empty if it is."""
    answer = httpx.get(f"http://{management}/readyz", timeout=30)
    assert answer.status_code in (200, 503)
    return "" if answer.status_code == 200 else answer.text


def test_a_gateway_whose_broker_is_silent_reports_it_and_serves_remote_data(house: House) -> None:
    topic = house.create("silent", internal_segment_bytes="20000")
    house.append(topic, RECORDS)
    with house.agent():
        eventually(lambda: len(house.logs(topic)) == 1)
    gateway, url = house.gateway()
    management = gateway.said()["management"]
    eventually(lambda: not not_ready(management), 30)
    assert httpx.get(f"{url}/v1/topics/{topic}").status_code == 200
    freeze(house.kafka, 0)
    try:
        assert "the brokers are away" in str(eventually(lambda: not_ready(management), 30))
        path = f"{url}/v1/topics/{topic}/partitions/0/records?offset=0&tier=remote"
        answer = httpx.get(path, timeout=60)
        assert answer.status_code == 200, answer.text
        assert httpx.get(f"http://{management}/healthz", timeout=30).status_code == 200, "no restart would help"
    finally:
        thaw(house.kafka, 0)
    eventually(lambda: not not_ready(management), 30)
    gateway.stop()


def test_remote_records_are_read_without_a_broker_and_with_their_age(house: House) -> None:
    topic = house.create("orders", internal_segment_bytes="20000")
    house.append(topic, RECORDS)
    with house.agent():
        eventually(lambda: len(house.logs(topic)) == 1)
    local = int(house.logs(topic)[0].stem)
    gateway, url = house.gateway()
    path = f"/v1/topics/{topic}/partitions/0/records"
    with httpx.Client(base_url=url, timeout=120) as client:
        before, answers = pages(client, path, local)
        assert all("x-view-age" not in answer.headers for answer in answers)
        house.kafka.kill(0)
        # a broker's answer of a moment ago is still good for a moment
        eventually(lambda: "x-view-age" in client.get(f"{path}?offset=0&tier=remote").headers, 60)
        after, answers = pages(client, path, local)
        assert (after, len(after)) == (before, local)
        ages = [float(answer.headers["x-view-age"]) for answer in answers]
        assert all(0 <= age < 300 for age in ages)
        for query in (f"offset={local}&tier=remote", f"offset={10 * RECORDS}&tier=remote", "offset=0", "timestamp=0"):
            answer = client.get(f"{path}?{query}")
            assert (answer.status_code, "retry-after" in answer.headers) == (503, True), (query, answer.text)
        page = ["/v1/topics", f"/v1/topics/{topic}", *(f"/v1/topics/{topic}/{each}" for each in ("summary", "facts"))]
        for answer in map(client.get, page):
            assert answer.status_code == 200, answer.text
            assert 0 <= float(answer.headers["x-view-age"]) < 300
        assert topic in [each["topic"] for each in client.get("/v1/topics").json()["topics"]]
        shown = client.get(f"/v1/topics/{topic}/partitions?partition=0").json()["partitions"][0]
        assert (shown["highest_remote_offset"], shown["high_watermark"]) == (local - 1, None)
        assert client.get("/v1/topics/none/partitions/0/records?offset=0&tier=remote").status_code in (404, 503)
        house.kafka.start(0)
        eventually(lambda: client.get(f"{path}?offset={local}").status_code == 200, 120)
        calls = (f"{path}?offset=0&tier=remote", *page)
        eventually(lambda: all("x-view-age" not in client.get(each).headers for each in calls), 60)
    gateway.stop()
