"""`tierstate proxy --source bucket`: the cluster is lost, and Kafka clients read what the bucket has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.consumer.tiered_cluster import TieredCluster, polled, until
from tests.proxy.clients import ANYWHERE, CLIENTS, PARTITIONS
from tests.proxy.python_clients import Rows
from tests.proxy.running import received
from tests.proxy.scenario import Scenario
from tests.proxy.starts import EARLIEST, At, Group, Read, Time
from tierstate.app.opening.bucket_connection import BucketConnection
from tierstate.app.opening.connection import Connection
from tierstate.proxy.open import open_proxy
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.settings_load import load_settings
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import InvalidSettings
from tierstate.state.routing import Isolation

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
LEVEL = Isolation.READ_COMMITTED
READERS = ["librdkafka", "kafka-python", "aiokafka", pytest.param("java", marks=pytest.mark.slow)]
USERS = """
[ann]
password = "wonder, land="
read = ["{name}-or.*"]
[ANONYMOUS]
read = ["{name}-of-.*"]
"""


@dataclass
class Lost(Scenario):
    """A cluster whose broker is stopped. ``ends``: what of each topic is in the remote tier. ``starts``: the offsets of
    times by topic, from the broker.

    ``middle``: a time between the copies of the two halves of ``later``, and ``first`` the end of its first half.
    """

    ends: dict[str, list[int]] = field(default_factory=dict)
    starts: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    later: str = ""
    middle: int = 0
    first: int = 0

    def expected(self, client: str) -> Rows:
        """Return what the client should read: at the broker it read the same, and more that was not copied."""
        return [row for row in self.truth(client, LEVEL) if row[1] < self.ends[self.read_by(client)][row[0]]]


@dataclass
class Served:
    """A proxy in this process. ``lines``: its log."""

    bootstrap: str
    connection: BucketConnection
    lines: list[tuple[str, dict[str, object]]]

    def config(self, **more: Any) -> dict[str, Any]:
        common = {"bootstrap.servers": self.bootstrap, "group.id": "x", "auto.offset.reset": "error", "log_level": 0}
        return {**common, **{name.replace("_", "."): value for name, value in more.items()}}


@contextmanager
def served(cluster: TieredCluster, state: Path, *sets: str) -> Iterator[Served]:
    """Serve the bucket on a free port until the block ends; then none of its memory may still be held."""
    lines: list[tuple[str, dict[str, object]]] = []
    sets = ("view.source=bucket", "proxy.listen=127.0.0.1:0", f"state_dir={state}", *sets)
    settings = load_settings(cluster.settings_file, sets, {}, searched=())
    with ExitStack() as opened:
        connection = opened.enter_context(BucketConnection(Connection(settings), tell=lambda age: None))
        reader = connection.reader(connection.view())
        warn = lambda event, **facts: lines.append((event, facts))  # noqa: E731
        server = opened.enter_context(open_proxy(reader, {}, settings, SystemClock(), warn))
        process = server.process()
        process.start()
        try:
            yield Served(str(server.address), connection, lines)
        finally:
            process.stop()
            assert process.join(20)
            assert process.failure is None, process.failure
            assert server.budget.used == 0, "memory that nobody gave back"


def offsets_at(bootstrap: str, topic: str, ms: int) -> list[int]:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "times"})) as consumer:
        places = [TopicPartition(topic, number, ms) for number in range(PARTITIONS)]
        return [each.offset for each in consumer.offsets_for_times(places, 20)]


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Lost:
    kafka = KafkaSandbox().open()
    cluster = TieredCluster(kafka, tmp_path_factory.mktemp("lost"), "_tier-state-lost")
    cluster.settings('[archive]\npartial_after = "0s"\n')
    made = Lost(cluster)
    made.fill_topics(("orders", "of-python"))
    for topic, times in made.late_times.items():
        made.starts[topic] = {ms: offsets_at(kafka.bootstrap, topic, ms) for ms in times}
    made.later = cluster.topic("later", 400)
    cluster.run("agent", "--once")
    made.first = cluster.local_start(made.later)
    made.middle = SystemClock().now_ms() + 1
    cluster.produce(made.later, 400, 800)
    cluster.run("agent", "--once")
    cluster.run("agent", "--once")  # it archives what the first run has written last
    kafka.close()
    with served(cluster, tmp_path_factory.mktemp("looks")) as proxy:
        with_ends = Consumer(proxy.config())
        for topic in made.topics.values():
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            made.ends[topic] = [with_ends.get_watermark_offsets(place, 20)[1] for place in places]
        with_ends.close()
    assert all(end > 500 for ends in made.ends.values() for end in ends), made.ends
    return made


@pytest.fixture
def proxy(lost: Lost, tmp_path: Path) -> Iterator[Served]:
    with served(lost.cluster, tmp_path) as made:
        yield made


def test_librdkafka_reads_what_it_read_at_the_broker(lost: Lost, proxy: Served) -> None:
    """Every codec, aborted transactions, headers, nulls."""
    rows = ANYWHERE["librdkafka"](proxy.bootstrap, LEVEL, [Read(lost.read_by("librdkafka"), EARLIEST)])[0]
    assert rows == lost.expected("librdkafka")
    assert not proxy.lines


@pytest.mark.parametrize("client", READERS)
def test_a_client_begins_at_offsets_and_times_and_in_a_group(lost: Lost, proxy: Served, client: str) -> None:
    topic, expected = lost.read_by(client), lost.expected(client)
    known = {
        ms: offsets
        for ms, offsets in lost.starts[topic].items()
        if all(0 < offset < end for offset, end in zip(offsets, lost.ends[topic], strict=True))
    }
    assert {ms: offsets_at(proxy.bootstrap, topic, ms) for ms in known} == known
    time, starts = max(known.items())
    reads = [Read(topic, EARLIEST), Read(topic, At((100, 200))), Read(topic, Time(time))]
    whole, border, at_time = ANYWHERE[client](proxy.bootstrap, LEVEL, reads)
    assert whole == expected
    assert border == [row for row in expected if row[1] >= (100, 200)[row[0]]]
    assert at_time == [row for row in expected if row[1] >= starts[row[0]]]
    (first,) = ANYWHERE[client](proxy.bootstrap, LEVEL, [Read(topic, Group("g", 300))])
    (second,) = ANYWHERE[client](proxy.bootstrap, LEVEL, [Read(topic, Group("g"))])
    assert len(first) >= 300
    assert sorted(first + second, key=lambda row: row[:2]) == expected, "the group skipped records, or read them twice"


def test_the_console_consumer_of_kafka_reads_a_topic(lost: Lost, proxy: Served) -> None:
    lines = CLIENTS["java"](proxy.bootstrap, lost.later, LEVEL)
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
