"""`tierstate proxy --source bucket`: the cluster is lost, and Kafka clients read what the bucket has."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.consumer.tiered_cluster import polled, until
from tests.proxy.clients import ANYWHERE, CLIENTS, GROUP, PARTITIONS, WAYS, level_of, without_markers
from tests.proxy.java_programs import java, java_program
from tests.proxy.lost_cluster import Lost, Served, lose, offsets_at, served
from tests.proxy.python_clients import Rows
from tests.proxy.running import received
from tests.proxy.starts import EARLIEST, At, Group, Read, Time
from tests.servers.java_clients import kafka_streams
from tierstate.sandbox.artifacts import kafka_libs
from tierstate.state.errors import InvalidSettings
from tierstate.state.routing import Isolation

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
FAST = ("librdkafka", "kafka-python", "aiokafka")
READERS = [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in ANYWHERE]
TOPICS = ("orders", "of-python", "of-rskafka")
USERS = """
[ann]
password = "wonder, land="
read = ["{name}-or.*"]
[ANONYMOUS]
read = ["{name}-of-py.*"]
"""


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Lost:
    return lose(tmp_path_factory.mktemp("lost"), TOPICS)


@pytest.fixture
def proxy(lost: Lost, tmp_path: Path) -> Iterator[Served]:
    with served(lost.cluster, tmp_path) as made:
        yield made


@pytest.mark.parametrize("client", READERS)
def test_a_client_reads_all_that_was_copied_and_begins_anywhere(lost: Lost, proxy: Served, client: str) -> None:
    """Every codec, aborted transactions, headers, nulls: as far as the client reads them at a broker."""
    topic, expected, level = lost.read_by(client), lost.expected(client), level_of(client)
    known = {
        ms: offsets
        for ms, offsets in lost.starts[topic].items()
        if all(0 < offset < end for offset, end in zip(offsets, lost.ends[topic], strict=True))
    }
    assert {ms: offsets_at(proxy.bootstrap, topic, ms) for ms in known} == known
    time, starts = max(known.items())

    def rows(*reads: Read) -> list[Rows]:
        return [without_markers(client, each) for each in ANYWHERE[client](proxy.bootstrap, level, reads)]

    whole, border, at_time = rows(Read(topic, EARLIEST), Read(topic, At((100, 200))), Read(topic, Time(time)))
    assert whole == expected
    assert border == [row for row in expected if row[1] >= (100, 200)[row[0]]]
    assert at_time == [row for row in expected if row[1] >= starts[row[0]]]
    if GROUP in WAYS[client]:
        (first,), (second,) = rows(Read(topic, Group("g", 300))), rows(Read(topic, Group("g")))
        assert len(first) >= 100
        assert sorted(first + second, key=lambda row: row[:2]) == expected, "the group skipped records, or read twice"
    assert not proxy.lines


def test_the_console_consumer_of_kafka_reads_a_topic(lost: Lost, proxy: Served) -> None:
    lines = CLIENTS["java"](proxy.bootstrap, lost.later, Isolation.READ_COMMITTED)
    fields = [line.split(b"\t") for (line,) in lines if line.startswith(b"CreateTime:")]
    shown = sorted((int(each[2].removeprefix(b"Offset:")), each[-1].split()[0]) for each in fields)
    assert len(shown) > lost.first
    assert shown == [(number, b"0/%d" % number) for number in range(len(shown))]


def test_offsets_of_a_group_outlive_the_proxy_and_belong_to_their_user(lost: Lost, tmp_path: Path) -> None:
    topic = lost.read_by("librdkafka")
    place = TopicPartition(topic, 0, 123)
    users = tmp_path / "users.toml"
    users.write_text(USERS.format(name=topic.removesuffix("-orders")).replace("of-", "or"))
    users.chmod(0o600)
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "ann", "sasl_password": "wonder, land="}
    with served(lost.cluster, tmp_path, f"proxy.principals={users}") as made:
        consumer = Consumer(made.config(sasl_mechanism="PLAIN", **login))
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()
    with served(lost.cluster, tmp_path, f"proxy.principals={users}") as made:
        for more, offset in (({"sasl_mechanism": "PLAIN", **login}, 123), ({}, -1001)):
            consumer = Consumer(made.config(**more))
            assert [each.offset for each in consumer.committed([TopicPartition(topic, 0)], 20)] == [offset]
            consumer.close()


def test_two_members_share_a_group_and_one_takes_over(lost: Lost, proxy: Served) -> None:
    topic = lost.read_by("librdkafka")
    two = [Consumer(proxy.config(session_timeout_ms=6000, auto_offset_reset="earliest")) for _ in range(2)]
    for each in two:
        each.subscribe([topic])

    def poll() -> None:
        for each in two:
            each.poll(0.2)

    until(lambda: [len(each.assignment()) for each in two] == [1, 1], poll)
    two.pop().close()
    until(lambda: len(two[0].assignment()) == PARTITIONS, poll)
    two[0].close()


def test_groups_are_shown_with_and_without_members(lost: Lost, proxy: Served) -> None:
    topic, admin = lost.read_by("librdkafka"), AdminClient(proxy.config())
    consumer = Consumer(proxy.config(group_id="busy", auto_offset_reset="earliest", client_id="app"))
    consumer.subscribe([topic])
    until(lambda: len(consumer.assignment()) == PARTITIONS, lambda: consumer.poll(0.2))
    idle = Consumer(proxy.config(group_id="idle"))
    idle.commit(offsets=[TopicPartition(topic, 1, 7)], asynchronous=False)
    idle.close()
    states = {each.group_id: each.state.name for each in admin.list_consumer_groups().result(20).valid}
    assert states == {"busy": "STABLE", "idle": "EMPTY"}
    listed = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(20).valid
    assert [each.group_id for each in listed] == ["idle"]
    described = {name: each.result(20) for name, each in admin.describe_consumer_groups(["busy", "idle", "no"]).items()}
    assert {name: each.state.name for name, each in described.items()} == {**states, "no": "DEAD"}
    (member,) = described["busy"].members
    assert (member.client_id, len(member.assignment.topic_partitions)) == ("app", PARTITIONS)
    consumer.close()


def test_a_consumer_of_the_newer_protocol_gets_an_error_and_does_not_wait(lost: Lost, proxy: Served) -> None:
    consumer = Consumer(proxy.config(group_protocol="consumer"))
    consumer.subscribe([lost.later])
    message = consumer.poll(20)
    assert message is not None
    assert message.error().code() == KafkaError._FATAL
    assert "ConsumerGroupHeartbeat" in message.error().str()
    consumer.close()


@pytest.mark.slow
def test_kafkas_own_commands_show_and_reset_groups_and_offsets(lost: Lost, proxy: Served) -> None:
    topic, tools = lost.read_by("java"), "org.apache.kafka.tools"

    def shown(program: str, *flags: str) -> list[list[str]]:
        command = [*java(f"{tools}.{program}", kafka_libs()), "--bootstrap-server", proxy.bootstrap, *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return [line.split() for line in done.stdout.splitlines() if line]

    ends = [[f"{topic}:{number}:{end}"] for number, end in enumerate(lost.ends[topic])]
    assert shown("GetOffsetShell", "--topic", topic)[-PARTITIONS:] == ends
    groups, of_group = "consumer.group.ConsumerGroupCommand", ("--group", "reset")
    consumer = Consumer(proxy.config(group_id="reset"))
    consumer.commit(offsets=[TopicPartition(topic, number, 1) for number in range(PARTITIONS)], asynchronous=False)
    consumer.close()
    shown(groups, "--reset-offsets", "--shift-by", "8", "--topic", topic, *of_group, "--execute")
    assert ["reset"] in shown(groups, "--list")
    lines = [line for line in shown(groups, "--describe", *of_group) if line[:1] == ["reset"]]
    assert [line[1:6] for line in lines] == [
        [topic, str(number), "9", str(end), str(end - 9)] for number, end in enumerate(lost.ends[topic])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "global"])
def test_a_streams_application_has_the_table_of_the_bucket(
    lost: Lost, proxy: Served, tmp_path: Path, kind: str
) -> None:
    program = java_program("Table", kafka_streams(), kafka_libs())
    end = lost.ends[lost.later][0]
    digests = set()
    for number, restored in enumerate((0, end) if kind == "table" else (end, end)):
        arguments = [proxy.bootstrap, lost.later, "application", str(tmp_path / str(number)), str(end), kind]
        done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, done.stderr[-3000:]
        *counts, digest = done.stdout.split()[-3:]
        assert counts == [str(restored), str(end)]
        digests.add(digest)
    values = {str(number): f"0/{number} ".ljust(200, ".") for number in range(end)}
    content = "".join(key + value for key, value in sorted(values.items()))
    assert digests == {hashlib.sha256(content.encode()).hexdigest()}


def test_a_user_reads_the_topics_of_the_file_and_no_others(lost: Lost, tmp_path: Path) -> None:
    orders, other = lost.topics["orders"], lost.topics["of-python"]
    users = tmp_path / "users.toml"
    users.write_text(USERS.format(name=orders.removesuffix("-orders")))
    users.chmod(0o600)
    with served(lost.cluster, tmp_path, f"proxy.principals={users}") as made:
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, "sasl_username": "ann"}
            ann = Consumer(made.config(**login, sasl_password="wonder, land="))
            assert set(ann.list_topics(timeout=20).topics) == {orders}
            ann.assign([TopicPartition(orders, 0, 0)])
            polled(ann, 10)
            described = AdminClient(made.config(**login, sasl_password="wonder, land="))
            with pytest.raises(KafkaException) as denied:
                described.describe_topics(TopicCollection([other]))[other].result(20)
            assert denied.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            ann.close()
            stranger = AdminClient(made.config(**login, sasl_password="wrong"))
            with pytest.raises(KafkaException):
                stranger.list_topics(timeout=3)
        anonymous = Consumer(made.config())
        assert set(anonymous.list_topics(timeout=20).topics) == {other}
        anonymous.close()
        users.write_text(users.read_text().replace("[ANONYMOUS]", "[bob]"))
        with pytest.raises(KafkaException):
            AdminClient(made.config()).list_topics(timeout=3)
    refused = {each["reason"] for event, each in made.lines if event == "a login is refused"}
    assert refused == {"the user or the password is wrong"}


def test_other_machines_cannot_connect_without_a_file_of_users(lost: Lost, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"set proxy\.principals"):
        with served(lost.cluster, tmp_path, "proxy.listen=0.0.0.0:0", "proxy.advertised=localhost"):
            pass


def test_what_changes_anything_is_refused_at_once(lost: Lost, proxy: Served) -> None:
    topic, errors = lost.read_by("librdkafka"), []
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "log_level": 0})
    producer.produce(topic, b"x", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(30) == 0
    assert [each.code() for each in errors] == [KafkaError.CLUSTER_AUTHORIZATION_FAILED]
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap, "log_level": 0})
    for future in (*admin.create_topics([NewTopic("new", 1, 1)]).values(), *admin.delete_topics([topic]).values()):
        with pytest.raises(KafkaException) as refused:
            future.result(30)
        assert refused.value.args[0].code() == KafkaError._UNSUPPORTED_FEATURE


def test_offsets_by_specification_are_those_of_the_bucket(lost: Lost, proxy: Served) -> None:
    topic, admin = lost.read_by("librdkafka"), AdminClient({"bootstrap.servers": proxy.bootstrap})
    place, times = TopicPartition(topic, 0), [row[2] for row in lost.expected("librdkafka") if row[0] == 0]
    for spec, offset in ((OffsetSpec.earliest(), 0), (OffsetSpec.latest(), lost.ends[topic][0])):
        assert admin.list_offsets({place: spec})[place].result(20).offset == offset
    assert admin.list_offsets({place: OffsetSpec.max_timestamp()})[place].result(20).timestamp >= max(times)


def test_a_past_is_shown_as_it_was_and_the_newest_view_follows(lost: Lost, tmp_path: Path) -> None:
    def end(made: Served) -> int:
        consumer = Consumer(made.config())
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(lost.later, 0), 20)[1])
        finally:
            consumer.close()

    with served(lost.cluster, tmp_path / "now") as made:
        newest = end(made)
    with served(lost.cluster, tmp_path / "past", f"view.as_of=@{lost.middle}") as made:
        assert lost.first <= end(made) < newest


def test_new_objects_are_seen_by_connected_consumers(lost: Lost, tmp_path: Path) -> None:
    """The pieces of the archive and the checkpoints that came last are put aside, and come back while clients read."""
    store = Path(lost.cluster.store["url"].removeprefix("file://"))  # type: ignore[union-attr]
    late = [each for each in (store / "_tierstate").rglob("*") if each.stat().st_mtime * 1000 > lost.middle]
    aside = {each: each.read_bytes() for each in late if each.is_file() and each.parent.name != "agents"}
    assert aside
    for each in aside:
        each.unlink()
    try:
        with served(lost.cluster, tmp_path) as made:
            consumer = Consumer(made.config())
            consumer.assign([TopicPartition(lost.later, 0, 0)])
            end = consumer.get_watermark_offsets(TopicPartition(lost.later, 0), 20)[1]
            assert end >= lost.first
            before = polled(consumer, end)
            assert consumer.poll(1.0) is None
            for each, data in aside.items():
                each.write_bytes(data)
            made.connection.advance()
            after = polled(consumer, 100)
            assert [each.offset() for each in (*before, *after)] == list(range(len(before) + len(after)))
            consumer.close()
    finally:
        for each, data in aside.items():
            each.write_bytes(data)


def test_a_damaged_object_is_named_and_stops_its_partition_alone(lost: Lost, tmp_path: Path) -> None:
    topic = lost.topics["orders"]
    store = Path(lost.cluster.store["url"].removeprefix("file://"))  # type: ignore[union-attr]
    log = min(each for each in store.rglob("*.log") if topic in str(each) and each.parent.name == "0")
    whole = log.read_bytes()
    log.write_bytes(bytes(len(whole)))
    try:
        with served(lost.cluster, tmp_path) as made:
            consumer = Consumer(made.config())
            consumer.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)])
            records: dict[int, list[int]] = {}
            errors: list[KafkaError] = []
            until(lambda: errors and len(records.get(1, ())) > 500, lambda: received(consumer, records, errors))
            consumer.close()
        assert 0 not in records
        assert {each.code() for each in errors} == {KafkaError.INVALID_MSG}
        reasons = [str(facts["reason"]) for event, facts in made.lines if event == "a remote read failed"]
        assert all(log.name in each for each in reasons), reasons
        assert reasons
    finally:
        log.write_bytes(whole)
