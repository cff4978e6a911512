"""The cluster burned down, the bucket is left: remote records are read as before, by credentials that only read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from moto import settings as moto_settings
from moto.server import ThreadedMotoServer

from tests.scenarios.house import Done, House, eventually, get, run
from tests.scenarios.lost_topics import read_rows
from tierstate import connect, read_records
from tierstate.app.opening.bucket_connection import BucketConnection
from tierstate.app.opening.connection import Connection
from tierstate.log.record_digest import RecordDigest
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.settings_load import settings_from
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import InvalidRequest, OffsetOutOfRange, SegmentExpired
from tierstate.state.ids import TopicIdPartition

pytestmark = pytest.mark.kafka
READER = Path(__file__).resolve().parents[2] / "deploy" / "policies" / "s3-reader.json"
RECORDS = 3_000


@dataclass
class Burned:
    """A topic of two partitions, whose cluster is lost. ``ends``: the copied end of each; ``before``: the digests of
    all below it, read with brokers; ``said``: the output of ``topics`` then; ``middle``: a time (ms) between two rounds
    of copies, and ``early`` the ends of that time.
    """

    house: House
    topic: str
    ends: list[int]
    before: list[str]
    said: list[dict[str, Any]]
    middle: int
    early: list[int]

    @property
    def bucket(self) -> list[str]:
        """Return the flags of a person who has the bucket and nothing else."""
        return ["--store", self.house.store.as_uri(), "--source", "bucket"]

    def json(self, *arguments: str, code: int = 0) -> Any:
        done = run(*arguments, *self.bucket, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def burned(kafka_own: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burned]:
    house = House(kafka_own, tmp_path_factory.mktemp("burned"), "burned")
    topic = house.create("orders", 2)
    house.run("init")

    def rolled() -> list[int]:
        """Return the starts of the active segments: everything before is to be copied."""
        return [int(house.logs(topic, number)[-1].stem) for number in (0, 1)]

    def kept() -> list[int]:
        """Return the ends of the remote records, as the bucket has them."""
        settings = settings_from({"store.url": house.store.as_uri(), "view.source": "bucket"})
        with BucketConnection(Connection(settings), lambda age: None) as bucket:
            try:
                view, topic_id = bucket.view(), bucket.control.topic(topic).topic_id
            except InvalidRequest:
                return []  # nothing is archived yet
            owned = [view.partition(TopicIdPartition(topic_id, number)).coverage.owned for number in (0, 1)]
            return [each[-1].offsets.end + 1 if each else 0 for each in owned]

    try:
        with house.agent():
            for partition in (0, 1):
                house.append(topic, RECORDS // 2, partition)
            early = rolled()
            eventually(lambda: kept() == early)
            middle = SystemClock().now_ms() + 1
            house.append(topic, RECORDS // 2, 0, RECORDS // 2)
            last = rolled()
            eventually(lambda: kept() == last)
            before = [
                house.json("digest", f"{topic}:{number}", "--to", str(end))["digest"] for number, end in enumerate(last)
            ]
            document = house.json("topics")
        kafka_own.kill(0)
        yield Burned(house, topic, last, before, document, middle, early)
    finally:
        house.close()


@pytest.mark.essential
def test_digests_are_those_that_were_read_with_brokers(burned: Burned) -> None:
    for number, (end, digest) in enumerate(zip(burned.ends, burned.before, strict=True)):
        digests = burned.json("digest", f"{burned.topic}:{number}")
        assert [(each["start_offset"], each["end_offset"]) for each in digests["partitions"]] == [(0, end)]
        assert digests["digest"] == digest


def test_a_proxy_reports_a_store_that_is_away_and_serves_what_it_has(burned: Burned, tmp_path: Path) -> None:
    process, address = burned.house.proxy("--source", "bucket", "--set", "proxy.follow=1s")
    management = f"http://{process.said()['management']}"

    def gauge(name: str) -> float:
        lines = get(f"{management}/metrics")[1].decode().splitlines()
        return max(float(line.split()[-1]) for line in lines if line.startswith(f"tierstate_{name}"))

    def read() -> list[int]:
        rows = read_rows({"bootstrap.servers": address}, burned.topic, 0, burned.ends[0] - 1)
        return [offset for offset, _ in rows]

    before = read()
    assert gauge("object_store_away") == 0
    assert gauge("newest_fact_age_seconds") > gauge("view_age_seconds")
    burned.house.store.rename(tmp_path / "away")
    try:
        eventually(lambda: gauge("object_store_away") == 1)
        age = gauge("view_age_seconds")
        assert b"the view does not get on" in get(f"{management}/readyz")[1]
        assert read() == before
        eventually(lambda: gauge("view_age_seconds") > age + 1)
    finally:
        (tmp_path / "away").rename(burned.house.store)
    eventually(lambda: gauge("view_age_seconds") < age)
    assert gauge("object_store_away") == 0
    (failure,) = process.events("chore failed")
    assert "reads go on by the view as it is" in failure["error"]
    assert process.stop() == 0


def test_consume_says_first_how_old_the_view_is_and_gives_every_record(burned: Burned) -> None:
    done = run("consume", f"{burned.topic}:0", "--format", "%o %k %s\\n", *burned.bucket)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [f"{number} k{number % 7} {number:0120d}" for number in range(burned.ends[0])]
    assert done.stderr.startswith("view from the bucket alone (cluster ")
    assert "it is of " in done.stderr
    as_json = run("consume", f"{burned.topic}:0", "-n", "1", "--json", *burned.bucket)
    view_line = json.loads(as_json.stderr)["view"]
    assert view_line["source"] == "bucket"
    assert 0 <= view_line["age_ms"] < 3_600_000


def test_a_digest_by_segments_says_once_how_old_the_view_is(burned: Burned) -> None:
    done = run("digest", f"{burned.topic}:0", "--per-segment", *burned.bucket)
    assert done.returncode == 0
    assert done.stderr.count("view from the bucket alone") == 1
    assert " part" in done.stdout


def test_topics_and_describe_are_the_same_as_with_brokers(burned: Burned) -> None:
    assert burned.json("topics") == burned.said
    described = burned.json("describe", burned.topic)
    assert [each["highest_remote_offset"] + 1 for each in described] == burned.ends
    assert {each["local_log_start_offset"] for each in described} == {None}
    assert {each["agent"] for each in described} == {"not asked: the bucket alone is read"}
    text = run("describe", burned.topic, *burned.bucket)
    assert "local tier    not asked: the bucket alone is read" in text.stdout


@pytest.mark.essential
def test_python_reads_the_bucket_alone(burned: Burned, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"view.source": "bucket"}
    for number, (end, before) in enumerate(zip(burned.ends, burned.before, strict=True)):
        digest = RecordDigest()
        rows = 0
        for batch in read_records({}, burned.house.store.as_uri(), burned.topic, number, 0, end, settings=settings):
            assert "view from the bucket alone" in caplog.text
            digest.update(batch)
            rows += batch.num_rows
        assert rows == end
        whole = burned.json("digest", f"{burned.topic}:{number}")
        assert whole["partitions"][0]["digest"] == digest.hexdigest()
        assert whole["digest"] == before


def test_a_connection_reads_the_bucket_alone(burned: Burned) -> None:
    with connect(store=burned.house.store.as_uri(), source="bucket") as log:
        assert log.topics() == [burned.topic]
        topic = log.topic(burned.topic)
        assert [topic.bounds(number).high_watermark for number in topic.partitions()] == burned.ends
        table = topic.read(partitions=[1]).to_table()
    assert table.column("offset").to_pylist() == list(range(burned.ends[1]))


def test_a_time_between_two_rounds_of_copies_is_the_view_of_then(burned: Burned) -> None:
    digests = burned.json("digest", burned.topic, "--as-of", f"@{burned.middle}")
    assert [each["end_offset"] for each in digests["partitions"]] == burned.early
    assert burned.early[0] < burned.ends[0]


def test_requests_that_need_a_broker_or_new_data_are_refused(burned: Burned) -> None:
    refused: list[tuple[Done, str]] = [
        (run("consume", burned.topic, "--follow", *burned.bucket), "the bucket's view stands still"),
        (run("describe", burned.topic, "--watch", *burned.bucket), "the bucket's view stands still"),
        (run("digest", burned.topic, "--via", "broker", *burned.bucket), "no broker is asked, and this needs one"),
        (run("topics", "--gateway", "http://127.0.0.1:1", *burned.bucket), "--gateway or --source bucket"),
        (run("topics", "--as-of", "@-1h", "--bootstrap-server", "127.0.0.1:1"), "--source bucket is needed"),
    ]
    for done, why in refused:
        assert done.returncode == 2, done.stderr
        assert why in done.stderr


def test_credentials_that_may_only_read_are_enough(burned: Burned, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 under `deploy/policies/s3-reader.json`: any attempt to write would be refused, and the read with it."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        root: dict[str, Any] = {"endpoint_url": endpoint, "region_name": "us-east-1"}
        root |= {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        s3, iam, bucket = boto3.client("s3", **root), boto3.client("iam", **root), f"burned-{os.getpid()}"
        s3.create_bucket(Bucket=bucket)
        for path in (each for each in burned.house.store.rglob("*") if each.is_file()):
            s3.upload_file(str(path), bucket, f"tier/{path.relative_to(burned.house.store)}")
        user = f"reader-of-{bucket}"
        iam.create_user(UserName=user)
        policy = READER.read_text().replace("BUCKET", bucket)
        iam.put_user_policy(UserName=user, PolicyName="its", PolicyDocument=policy)
        key = iam.create_access_key(UserName=user)["AccessKey"]
        monkeypatch.setattr(moto_settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        settings = {
            "view.source": "bucket",
            "store.endpoint": endpoint,
            "store.region": "us-east-1",
            "store.access_key_id": key["AccessKeyId"],
            "store.secret_access_key": key["SecretAccessKey"],
        }
        url, end = f"s3://{bucket}/tier", burned.ends[1]
        batches = list(read_records({}, url, burned.topic, 1, 0, end, settings=settings))
        assert pa.Table.from_batches(batches).column("offset").to_pylist() == list(range(end))
        past, then = settings | {"view.as_of": f"@{burned.middle}"}, burned.early[0]
        batches = list(read_records({}, url, burned.topic, 0, 0, then, settings=past))
        assert pa.Table.from_batches(batches).column("offset").to_pylist() == list(range(then))
        with pytest.raises(OffsetOutOfRange):
            list(read_records({}, url, burned.topic, 0, 0, then + 1, settings=past))
        lost = next(path for path in sorted(burned.house.store.rglob("*.log")) if path.parent.name == "0")
        with monkeypatch.context() as unguarded:
            unguarded.setattr(moto_settings, "INITIAL_NO_AUTH_ACTION_COUNT", float("inf"))
            s3.delete_object(Bucket=bucket, Key=f"tier/{lost.relative_to(burned.house.store)}")
        with pytest.raises(SegmentExpired, match=re.escape(lost.stem)):
            list(read_records({}, url, burned.topic, 0, 0, then, settings=past))
        own = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
        reader = boto3.client("s3", **root | own)
        with pytest.raises(reader.exceptions.ClientError, match="AccessDenied"):
            reader.put_object(Bucket=bucket, Key="tier/more", Body=b"1")
    finally:
        server.stop()


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_the_bucket_alone(burned: Burned) -> None:
    for number, digest in enumerate(burned.before):
        counted = run("digest", f"{burned.topic}:{number}", "--via", "spark", *burned.bucket, "--json", seconds=300)
        assert counted.returncode == 0, counted.stderr
        counts = json.loads(counted.stdout)
        assert counts["digest"] == digest
        assert counts["partitions"][0]["end_offset"] == burned.ends[number]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_a_past_of_the_bucket_alone(burned: Burned) -> None:
    past = ["--as-of", f"@{burned.middle}", "--json"]
    ours, sparks = (
        run("digest", f"{burned.topic}:0", "--via", via, *past, *burned.bucket, seconds=300)
        for via in ("reader", "spark")
    )
    assert sparks.returncode == 0, sparks.stderr
    counts = json.loads(sparks.stdout)
    assert counts["digest"] == json.loads(ours.stdout)["digest"]
    assert counts["partitions"][0]["end_offset"] == burned.early[0]
