"""A user without read access at the broker gets no byte of a topic from the gateway, by any call or any login."""

from __future__ import annotations

import re
import threading

import httpx
import jwt
import pytest
from confluent_kafka.admin import ResourceType

from tests.api.guarded_gateway import (
    BINDINGS,
    DENY,
    DESCRIBE,
    KEY,
    READ,
    RECORDS_PATH,
    TOPIC,
    WAYS,
    Guarded,
    basic,
)
from tests.broker.guarded import allow, binding, denied, unsigned_token
from tests.commits import commit
from tests.docs.http_world import app
from tests.scenarios.house import eventually
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
DESCRIBING = [
    "",
    "/partitions/0",
    "/partitions?partition=0",
    "/partitions/0/offsets?timestamp=0",
    "/summary",
    "/times",
    "/groups",
]
READING = [
    "/facts",
    "/partitions/0/segments",
    "/partitions/0/agent",
    "/partitions/0/records?offset=0",
    "/partitions/0/records?offset=0&tier=remote",
    "/partitions/0/records?offset=0&contains=0",
]
OF_A_SEGMENT = ["grant", "log", "manifest", "indexes"]


def test_no_call_is_left_out_here() -> None:
    below = [*DESCRIBING, *READING, *(f"/partitions/0/segments/x/{name}" for name in OF_A_SEGMENT)]
    whole = ["/v1/plans", "/v1/plans/x", "/v1/tables", "/v1/topics"]
    paths = [*whole, *(f"/v1/topics/t{path.partition('?')[0]}" for path in below)]
    for path in app().openapi()["paths"]:
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))
        assert any(re.fullmatch(pattern, path) for path in paths), path


@pytest.mark.parametrize("name", BINDINGS)
@pytest.mark.parametrize("way", WAYS)
def test_each_call_gives_what_kafka_lets_the_caller_have(guarded: Guarded, way: str, name: str) -> None:
    may, topic = BINDINGS[name][1], guarded.topic(name)
    with guarded.client(way) as client:
        for paths, needed in ((DESCRIBING, ("reads", "knows")), (READING, ("reads",))):
            for path in paths:
                answer = client.get(f"/v1/topics/{topic}{path}")
                expected = 200 if may in needed else 403 if may == "knows" else 404
                assert answer.status_code == expected, (path, answer.text)
                if expected != 200:
                    assert "0" * 100 not in answer.text
                    assert answer.headers["content-length"] == str(len(answer.content))
        listed = {row["topic"] for row in client.get("/v1/topics").json()["topics"]}
    assert (topic in listed) == (may != "nothing")


@pytest.mark.parametrize("name", BINDINGS)
@pytest.mark.parametrize("way", WAYS)
def test_only_users_who_may_read_get_plans_and_segments(guarded: Guarded, way: str, name: str) -> None:
    may, topic = BINDINGS[name][1], guarded.topic(name)
    with guarded.client("basic", "admin") as admin:
        segments = admin.get(f"/v1/topics/{topic}/partitions/0/segments").json()["segments"]
    expected = {"reads": 200, "knows": 403, "nothing": 404}[may]
    with guarded.client(way) as client:
        ranges = [{"topic": name, "partition": 0} for name in (topic, guarded.topic("is-denied"))]
        answers = [client.post("/v1/plans", json={"ranges": ranges[:1], "lease_seconds": 0})]
        both = client.post("/v1/plans", json={"ranges": ranges, "lease_seconds": 0})
        assert both.status_code in (400, 403, 404), "one of two is not enough"
        for what in OF_A_SEGMENT:
            path = f"/v1/topics/{topic}/partitions/0/segments/{segments[0]['segment_id']}/{what}"
            answers.append(client.get(path, headers={"range": "bytes=0-99"}))
        # of a topic that may be read, a segment of another topic
        path = f"/v1/topics/{guarded.topic('may-read')}/partitions/0/segments/{segments[0]['segment_id']}/log"
        over = client.delete(f"/v1/plans/{'a' * 32}-60", params={"topic": topic})
        assert over.status_code == (403 if may == "knows" else 404)
        assert ("no such plan" in over.text) == (may == "reads")
        assert client.get(path).status_code == (200 if name == "may-read" else 410)
    assert [answer.status_code for answer in answers] == [
        expected,
        expected,
        *[206 if may == "reads" else expected] * 3,
    ]
    assert all(may == "reads" or b"0" * 100 not in answer.content for answer in answers)


@pytest.mark.parametrize("way", WAYS)
def test_a_topic_that_one_may_not_know_of_looks_like_one_that_is_not_there(guarded: Guarded, way: str) -> None:
    for path in DESCRIBING + READING:
        with guarded.client(way) as client:  # a connection's wrong calls wait for longer and longer
            forbidden = client.get(f"/v1/topics/{guarded.topic('has-none')}{path}")
            missing = client.get(f"/v1/topics/{guarded.topic('not-here')}{path}")
            text = forbidden.text.replace("has-none", "not-here")
            assert (forbidden.status_code, text) == (missing.status_code, missing.text)


@pytest.mark.parametrize("way", WAYS)
def test_a_caller_is_shown_those_groups_alone_that_it_may_describe(
    guarded: Guarded, tls_kafka: KafkaSandbox, way: str
) -> None:
    topic, seen, hidden = guarded.topic("may-read"), f"seen-{way}", f"hidden-{way}"
    for group in (seen, hidden):
        commit(tls_kafka.client_config, group, topic, 0, 7)
    allow(tls_kafka, [binding("guest", ResourceType.GROUP, seen, DESCRIBE)])
    with guarded.client(way) as client:
        answer = client.get(f"/v1/topics/{topic}/groups")
    assert seen in {group["group_id"] for group in answer.json()["groups"]}
    assert "hidden" not in answer.text
    with guarded.client(way, "admin") as client:
        groups = {group["group_id"]: group for group in client.get(f"/v1/topics/{topic}/groups").json()["groups"]}
    assert groups.keys() >= {seen, hidden}
    assert (groups[seen]["committed_offset"], groups[seen]["in_remote_tier"]) == (7, True)


@pytest.mark.parametrize("way", WAYS)
def test_a_super_user_reads_every_tiered_topic(guarded: Guarded, way: str) -> None:
    with guarded.client(way, "admin") as client:
        for name in BINDINGS:
            assert client.get(f"/v1/topics/{guarded.topic(name)}{RECORDS_PATH}").status_code == 200
        assert client.get(f"/v1/topics/{guarded.house.tier_topic}").status_code == 404


def test_a_topic_that_is_not_tiered_is_not_served(guarded: Guarded) -> None:
    untiered = guarded.house.create("untiered")  # no agent runs now
    with guarded.client("basic", "admin") as client:
        for path in DESCRIBING + READING:
            assert client.get(f"/v1/topics/{untiered}{path}").status_code == 404
        assert untiered not in client.get("/v1/topics").text


@pytest.mark.parametrize(
    "headers",
    [{}, basic("guest", "wrong"), basic("nobody", "g"), {"authorization": "Bearer of-nobody"}, basic("admin", "")],
)
def test_a_caller_without_a_proof_gets_nothing(guarded: Guarded, headers: dict[str, str]) -> None:
    with guarded.client("none") as client:
        for path in ["", f"/{guarded.topic('may-read')}{RECORDS_PATH}", f"/{guarded.topic('not-here')}"]:
            answer = client.get(f"/v1/topics{path}", headers=headers)
            # the certificate of ``nobody`` is one of ours, for whose user we may make no token
            assert answer.status_code == (403 if not headers else 401), answer.text
            assert "topics" not in answer.json()


@pytest.mark.parametrize(
    "token",
    [
        unsigned_token("guest", exp=1_700_000_000),
        unsigned_token("guest", exp=None),
        unsigned_token(""),
        jwt.encode({"sub": "guest", "exp": 4_000_000_000}, KEY, "RS256"),
        unsigned_token("guest").replace(".", "\N{NO-BREAK SPACE}."),
        "opaque",
    ],
    ids="expired endless nobody signed odd opaque".split(),
)
def test_a_token_that_the_brokers_refuse_gets_nothing(guarded: Guarded, token: str) -> None:
    with guarded.client("relayed") as client:
        for path in ["", f"/{guarded.topic('may-read')}{RECORDS_PATH}", f"/{guarded.topic('not-here')}"]:
            answer = client.get(f"/v1/topics{path}", headers={b"authorization": f"Bearer {token}".encode("latin-1")})
            assert answer.status_code == 401, answer.text
            assert "topics" not in answer.json()


def test_a_token_reads_until_it_expires(guarded: Guarded) -> None:
    path, clock = f"/v1/topics/{guarded.topic('may-read')}{RECORDS_PATH}", SystemClock()
    ends = clock.now_ms() / 1000 + 5
    headers = {"authorization": f"Bearer {unsigned_token('guest', exp=ends)}"}
    with guarded.client("relayed") as client:
        assert client.get(path, headers=headers).status_code == 200
        eventually(lambda: clock.now_ms() > ends * 1000)
        assert client.get(path, headers=headers).status_code == 401


@pytest.mark.parametrize("way", ["basic", "relayed"])
def test_a_right_that_is_taken_away_between_two_pages_ends_the_loop(
    guarded: Guarded, tls_kafka: KafkaSandbox, way: str
) -> None:
    topic = guarded.topic("may-read")
    path = f"/v1/topics/{topic}/partitions/0/records?max_records=10"
    with guarded.client(way) as client:
        answer = client.get(f"{path}&offset=0")
        assert answer.status_code == 200
        following = answer.headers["x-next-offset"]
        with denied(tls_kafka, binding("guest", TOPIC, topic, READ, DENY)):
            assert client.get(f"{path}&offset={following}").status_code == 403
        assert client.get(f"{path}&offset={following}").status_code == 200


@pytest.mark.parametrize("way", ["basic", "relayed"])
def test_a_right_that_is_taken_away_during_a_long_poll_gives_no_record(
    guarded: Guarded, tls_kafka: KafkaSandbox, way: str
) -> None:
    topic = guarded.topic("may-read")
    with guarded.client("basic", "admin") as admin:
        end = admin.get(f"/v1/topics/{topic}/partitions/0").json()["high_watermark"]
    path = f"/v1/topics/{topic}/partitions/0/records?timeout_ms=60000"
    answers: list[httpx.Response] = []
    with guarded.client(way) as client:

        def poll() -> None:
            answers.append(client.get(f"{path}&offset={end}"))

        polling = threading.Thread(target=poll)
        polling.start()
        try:
            with denied(tls_kafka, binding("guest", TOPIC, topic, READ, DENY)):
                guarded.house.append(topic, 5, first=end)
                polling.join(60)
        finally:
            polling.join(60)
        assert [answer.status_code for answer in answers] == [403]
        assert client.get(f"{path}&offset={end}").status_code == 200
