"""Plans for readers without a key to the bucket: the access that they get, for how long, and their refusals."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx
import pytest

from tests.spark.conftest import Orders
from tests.spark.gateways import PlanningGateway, planning_gateway, read_through, splits_of
from tests.spark.tiers import NOW, Record, Tiers
from tests.storage.conftest import versitygw_bucket, versitygw_endpoint
from tierstate.app.operating.plans import SegmentPlace
from tierstate.fetch.gateway import GatewayClient
from tierstate.fetch.gateway_plans import GatewayGrants, GatewayTier
from tierstate.fetch.granted_objects import GrantedObjects
from tierstate.fetch.planned_split import PlannedPart
from tierstate.fetch.split import read_split
from tierstate.lake.log import GatewayLog
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import PlannedRangeLost, SegmentExpired
from tierstate.state.facts import DeleteReason, ReaderLease, SegmentDeleteStarted
from tierstate.state.offsets import Extent, Offset
from tierstate.state.routing import Isolation
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store

__all__ = ["versitygw_bucket", "versitygw_endpoint"]
pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def gateway(tiers: Tiers) -> Iterator[PlanningGateway]:
    with planning_gateway(tiers) as opened:
        yield opened


def committed(orders: Orders) -> list[tuple[int, int, Any]]:
    return [(record[3], record[4], record[1]) for record in sorted(orders.committed, key=place)]


def place(record: Record) -> tuple[int, int]:
    return record[3], record[4]


def plan(url: str, topic: str, **more: Any) -> httpx.Response:
    request = {"ranges": [{"topic": topic, "partition": 0}], "lease_seconds": 60} | more
    return httpx.post(f"{url}/v1/plans", json=request, timeout=30)


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def segment_ids(answer: httpx.Response) -> list[str]:
    return [line["segment"]["segment_id"] for line in lines_of(answer) if "segment" in line]


def test_a_plan_read_through_the_gateway_has_every_committed_record_once(
    gateway: PlanningGateway, orders: Orders
) -> None:
    assert read_through(gateway.url, orders.name) == committed(orders)


def test_no_remote_byte_goes_through_the_gateway_with_signed_urls(
    tiers: Tiers, orders: Orders, versitygw_endpoint: str, versitygw_bucket: str, tmp_path: Path
) -> None:
    store = S3Store(
        versitygw_bucket, "here", StoreOptions(versitygw_endpoint, "us-east-1", credentials=("test", "test"))
    )
    for each in tiers.store.list():
        store.put_if_absent(each.key, tiers.store.get(each.key))
    settings: dict[str, object] = {
        "store.url": f"s3://{versitygw_bucket}/here",
        "store.endpoint": versitygw_endpoint,
        "store.region": "us-east-1",
        "store.access_key_id": "test",
        "store.secret_access_key": "test",
    }
    log = tmp_path / "access"
    with planning_gateway(tiers, settings, access_log=log) as gateway:
        first = gateway.url
        assert read_through(gateway.url, orders.name) == committed(orders)
        segment_id = segment_ids(plan(gateway.url, orders.name))[0]
        path = f"{gateway.url}/v1/topics/{orders.name}/partitions/0/segments/{segment_id}/grant"
        urls = httpx.get(path).json()["urls"]
        assert all(url.startswith(versitygw_endpoint) for url in urls.values())
        assert httpx.get(urls["manifest"]).status_code == 200
        assert httpx.get(urls["manifest"].replace(".rsm-manifest", ".log")).status_code == 403, "of this object alone"
    with planning_gateway(tiers, settings, url_lifetime=0) as gateway:
        assert read_through(gateway.url, orders.name) == committed(orders)
        assert httpx.get(gateway.url + path.removeprefix(first)).json()["urls"]["log"].startswith("/v1/")
    store.close()
    paths = {json.loads(line)["path"].rpartition("/")[2] for line in log.read_text().splitlines()}
    assert {"plans", "grant"} <= paths
    assert not {"log", "manifest", "indexes"} & paths


def test_a_plan_says_where_each_offset_is_and_ends_with_a_line_that_proves_it_whole(
    gateway: PlanningGateway, orders: Orders
) -> None:
    first, *_, last = lines = lines_of(plan(gateway.url, orders.name, split_bytes=8192))
    splits = [line["split"] for line in lines if "split" in line]
    assert (first["lease_seconds"], last) == (60, {"splits": len(splits)})
    assert len(splits) > 2
    parts = [part for split in splits for part in split["parts"]]
    assert [part["end"] + 1 for part in parts[:-1]] == [part["start"] for part in parts[1:]]
    assert {part["segment_id"] for part in parts} == {*segment_ids(plan(gateway.url, orders.name)), None}


def test_segments_condemned_under_a_plan_are_read_by_that_plan_alone(tiers: Tiers, gateway: PlanningGateway) -> None:
    topic = tiers.create(f"condemned-{os.getpid()}")
    tiers.produce(topic, 0, [{"value": os.urandom(100)} for _ in range(600)])
    segment = tiers.copy(topic, 0)[0]
    tiers.trim(topic, 0, segment.offsets.end + 1)
    assert segment_ids(plan(gateway.url, topic))[0] == str(segment.segment_id)
    name = lines_of(plan(gateway.url, topic))[0]["plan"]
    at = SegmentPlace(topic, 0, segment.segment_id)
    tiers.say(SegmentDeleteStarted(segment, segment.term, 1, DeleteReason.RETENTION_TIME, NOW))
    number = gateway.view.tier_partition(segment.partition)
    gateway.view.require_fresh(number, 0)
    assert gateway.plans.segment(at, name, "")[0] == segment
    log = f"{gateway.url}{at.path('log')}"
    assert httpx.get(log, params={"plan": name}, headers={"range": "bytes=0-9"}).status_code == 206
    for other, user in (("", ""), (name, "somebody"), (f"{'a' * 32}-60", "")):
        with pytest.raises(SegmentExpired):
            gateway.plans.segment(at, other, user)
    assert httpx.get(log).status_code == 410


def test_a_grant_lasts_no_longer_than_the_lease_which_is_renewed_at_half_its_time(
    gateway: PlanningGateway, orders: Orders
) -> None:
    made = plan(gateway.url, orders.name, lease_seconds=2)
    name, segment_id = lines_of(made)[0]["plan"], segment_ids(made)[0]
    path = f"{gateway.url}/v1/topics/{orders.name}/partitions/0/segments/{segment_id}/grant"
    for _ in range(8):  # beyond the first lease's end
        answer = httpx.get(path, params={"plan": name})
        assert answer.status_code == 200
        assert 0.9 < answer.json()["expires_in_seconds"] <= 2
        SystemClock().sleep(0.5)
    assert httpx.get(path).json()["expires_in_seconds"] == 900


def test_segments_of_an_exports_plan_are_kept_exactly_as_long_as_it_runs(
    tiers: Tiers, gateway: PlanningGateway
) -> None:
    topic = tiers.create(f"exported-{os.getpid()}")
    tiers.produce(topic, 0, [{"value": os.urandom(100)} for _ in range(600)])
    tiers.copy(topic, 0)
    with closing(GatewayClient(gateway.url)) as client, closing(GatewayLog(client, pytest.fail, lease_s=2)) as log:
        log.planned(topic, 0, Extent(Offset(0), Offset(500)), Isolation.READ_COMMITTED, leased=True)
        [first] = leases(gateway, topic)
        for _ in range(6):  # beyond the first lease's end
            SystemClock().sleep(0.5)
            assert any(each.expires_at > SystemClock().now_ms() for each in leases(gateway, topic))
        assert {each.holder for each in leases(gateway, topic)} == {first.holder}
    assert leases(gateway, topic) == []


def test_executors_that_come_at_once_renew_a_lease_once(tiers: Tiers, gateway: PlanningGateway) -> None:
    topic = tiers.create(f"renewed-{os.getpid()}")
    tiers.produce(topic, 0, [{"value": os.urandom(100)} for _ in range(600)])
    segment = tiers.copy(topic, 0)[0]
    name = lines_of(plan(gateway.url, topic, lease_seconds=4))[0]["plan"]
    at = SegmentPlace(topic, 0, segment.segment_id)
    SystemClock().sleep(2.1)  # half of the lease is over
    together = Barrier(8)

    def granted() -> float:
        together.wait(30)
        return gateway.plans.grant(at, name, "", 900, with_key=False, sign=False).expires_in_s

    with ThreadPoolExecutor(8) as pool:
        lasting = [each.result(30) for each in [pool.submit(granted) for _ in range(8)]]
    assert min(lasting) > 2  # all by the new lease
    assert len(leases(gateway, topic)) == 2


def leases(gateway: PlanningGateway, topic: str) -> list[ReaderLease]:
    return list(gateway.plans._reader.view(topic, 0).leases)


def test_a_plan_that_is_given_up_keeps_nothing_and_changes_no_other(tiers: Tiers, gateway: PlanningGateway) -> None:
    topic = tiers.create(f"given-up-{os.getpid()}")
    tiers.produce(topic, 0, [{"value": os.urandom(100)} for _ in range(600)])
    tiers.copy(topic, 0)
    mine, others = (lines_of(plan(gateway.url, topic))[0]["plan"] for _ in range(2))
    anns = gateway.plans.lease({(topic, 0): Extent(Offset(0), Offset(500))}, "ann", 60).plan

    def given_up(name: str, **query: Any) -> int:
        return httpx.delete(f"{gateway.url}/v1/plans/{name}", params={"topic": topic} | query, timeout=30).status_code

    assert [given_up(name) for name in (mine, mine, anns)] == [204, 404, 404]
    assert {each.holder for each in leases(gateway, topic)} == {
        f"gateway plan {others} of anybody",
        f"gateway plan {anns} of ann",
    }
    assert [given_up("x"), given_up(others, topic=[]), given_up(others, topic="nobody")] == [400, 400, 404]
    assert given_up(others, topics="t") == 400
    allowed = httpx.options(f"{gateway.url}/v1/plans/{others}").headers["allow"]
    assert allowed == "DELETE, OPTIONS"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"ranges": []}, "ranges"),
        ({"ranges": [{"topic": "t", "partition": -1}]}, "partition"),
        ({"ranges": [{"topic": "t", "partition": 0, "stop": 3}]}, "stop"),
        ({"lease_secs": 3}, "lease_secs"),
        ({"tier": "warm"}, "tier"),
        ({"lease_seconds": 1_000_000}, "lease"),
        ({"ranges": [{"topic": "ORDERS", "partition": 0}] * 2}, "twice"),
        ({"ranges": [{"topic": "ORDERS", "partition": 7}]}, "no such partition"),
        ({"ranges": [{"topic": "ORDERS", "partition": 0, "start": 9, "end": 3}]}, "before it begins"),
        ({"ranges": [{"topic": "ORDERS", "partition": 0, "end": 10**9}]}, "past the end"),
    ],
)
def test_a_wrong_call_says_what_is_wrong_with_it(
    gateway: PlanningGateway, orders: Orders, body: dict[str, Any], message: str
) -> None:
    text = json.dumps({"ranges": [{"topic": orders.name, "partition": 0}]} | body).replace("ORDERS", orders.name)
    answer = httpx.post(f"{gateway.url}/v1/plans", content=text, headers={"content-type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text
    assert message in answer.json()["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_web_page_cannot_make_a_browser_ask_for_a_plan(
    gateway: PlanningGateway, orders: Orders, kind: str | None
) -> None:
    body = json.dumps({"ranges": [{"topic": orders.name, "partition": 0}]})
    headers = {} if kind is None else {"content-type": kind}
    answer = httpx.post(f"{gateway.url}/v1/plans", content=body, headers=headers)
    assert answer.status_code == 400
    reply = httpx.options(f"{gateway.url}/v1/plans", headers={"origin": "https://evil.example"})
    assert (reply.headers["allow"], "access-control-allow-origin" in reply.headers) == ("POST, OPTIONS", False)


@pytest.mark.parametrize(
    ("range", "status", "told"),
    [
        (None, 200, None),
        ("bytes=0-9", 206, "bytes 0-9/SIZE"),
        ("bytes=5-", 206, "bytes 5-LAST/SIZE"),
        ("bytes=5-99999999", 206, "bytes 5-LAST/SIZE"),
        ("bytes=99999999-", 416, None),
        ("bytes=9-5", 416, None),
        ("bytes=0-1,4-5", 200, None),
        ("lines=1-2", 200, None),
    ],
)
def test_objects_are_answered_by_range(
    gateway: PlanningGateway, tiers: Tiers, orders: Orders, range: str | None, status: int, told: str | None
) -> None:
    segment = next(line["segment"] for line in lines_of(plan(gateway.url, orders.name)) if "segment" in line)
    for name, suffix in (("log", ".log"), ("indexes", ".indexes"), ("manifest", ".rsm-manifest")):
        stored = tiers.store.get(segment["object_key"] + suffix)
        path = f"{gateway.url}/v1/topics/{orders.name}/partitions/0/segments/{segment['segment_id']}/{name}"
        answer = httpx.get(path, headers={} if range is None else {"range": range})
        assert answer.status_code == status
        if status < 300:
            size = str(len(stored))
            content_range = None if told is None else told.replace("SIZE", size).replace("LAST", str(len(stored) - 1))
            assert answer.headers.get("content-range") == content_range
            first, _, last = (told or "").removeprefix("bytes ").partition("/")[0].partition("-")
            start, stop = (int(first), int(last) + 1 if last.isdigit() else None) if told else (0, None)
            assert answer.content == stored[start:stop]


def test_a_head_request_reads_no_byte_of_the_object(tiers: Tiers, orders: Orders, tmp_path: Path) -> None:
    with planning_gateway(tiers, access_log=tmp_path / "access") as gateway:
        segment = next(line["segment"] for line in lines_of(plan(gateway.url, orders.name)) if "segment" in line)
        path = f"/v1/topics/{orders.name}/partitions/0/segments/{segment['segment_id']}/log"
        answer = httpx.head(gateway.url + path)
        assert (answer.status_code, answer.headers["content-length"]) == (200, str(segment["log_object_bytes"]))
    (line,) = [
        entry for each in (tmp_path / "access").read_text().splitlines() if (entry := json.loads(each))["path"] == path
    ]
    assert line["bytes"] == 0


def test_an_end_below_what_was_asked_for_is_a_shorter_plan_and_an_empty_one_has_no_split(
    gateway: PlanningGateway, orders: Orders
) -> None:
    ranges = [{"topic": orders.name, "partition": 0, "start": 3, "end": 3}]
    assert lines_of(plan(gateway.url, orders.name, ranges=ranges))[-1] == {"splits": 0}
    ranges = [{"topic": orders.name, "partition": 0, "start": 3, "end": 9}]
    (split,) = [line["split"] for line in lines_of(plan(gateway.url, orders.name, ranges=ranges)) if "split" in line]
    assert (split["start"], split["end"], split["parts"][-1]["end"]) == (3, 9, 8)


def test_a_topic_that_was_created_again_is_not_the_one_that_was_planned(tiers: Tiers, gateway: PlanningGateway) -> None:
    topic = tiers.create(f"again-{os.getpid()}")
    tiers.produce(topic, 0, [{"value": os.urandom(100)} for _ in range(600)])
    tiers.copy(topic, 0)
    client = GatewayClient(gateway.url)
    (split,) = splits_of(client, topic, partitions=1)
    local = [part.offsets for part in split.parts if part.segment is None]
    assert len(local) == 1
    tiers.admin.delete_topics([topic])[topic].result(30)
    tiers.create_again(topic)
    tiers.produce(topic, 0, [{"value": os.urandom(100)} for _ in range(600)])
    tiers.copy(topic, 0)  # else the gateway would not serve it at all
    while client.describe(topic)[0]["topic_id"] == str(split.topic_id):
        SystemClock().sleep(0.1)
    rest = replace(split, start=local[0].start, parts=(PlannedPart(local[0], None),))
    pieces = []
    with pytest.raises(PlannedRangeLost, match="re-created"):
        pieces += [*read_split(rest, GrantedObjects([], GatewayGrants(client, ""), SystemClock()), GatewayTier(client))]
    assert pieces == []
    client.close()
