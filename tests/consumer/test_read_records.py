"""`tierstate.read_records` against a real broker that an agent copied from and trimmed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tierstate import connect, errors, read_records
from tierstate.api.open import GatewayServer
from tierstate.api.service import FetchService
from tierstate.app.opening.connection import FOR_READERS, Connection
from tierstate.cli.main import run
from tierstate.consumer.connect import Log
from tierstate.fetch.reader import LogReader
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.setting_types import Address
from tierstate.runtime.settings_load import settings_from
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import InvalidRequest, OffsetOutOfRange, UnknownTopic
from tierstate.state.offsets import Extent, Offset
from tierstate.state.routing import Isolation, Tier

RECORDS = 400
TOPIC, FACTS = "read-records", "_tier-state-read-records"


@dataclass(frozen=True)
class TieredTopic:
    """A topic whose first segments are in the object store only."""

    kafka: dict[str, str]
    store: str
    local_start: int

    def read(self, start: int, end: int, topic: str = TOPIC, partition: int = 0) -> pa.Table:
        batches = read_records(
            self.kafka, self.store, topic, partition, start, end, settings={"tier_state.topic": FACTS}
        )
        return pa.Table.from_batches(list(batches))


@pytest.fixture(scope="module")
def tiered(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredTopic:
    folder = tmp_path_factory.mktemp("read-records")
    config = {"internal.segment.bytes": "16384", "retention.ms": "-1", "local.retention.bytes": "16384"}
    admin = AdminClient({**kafka.client_config})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(30)
    producer = Producer({**kafka.client_config, "batch.num.messages": 20})
    for number in range(RECORDS):
        producer.produce(TOPIC, key=str(number), value=json.dumps({"amount": number, "note": "." * 180}))
    assert producer.flush(30) == 0
    settings = folder / "tierstate.toml"
    settings.write_text(
        f'state_dir = "{folder / "state"}"\n[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
        f'[store]\nurl = "{(folder / "store").as_uri()}"\n'
        f'[tier_state]\ntopic = "{FACTS}"\npartitions = 2\nreplication_factor = 1\n'
        f'[tiering]\ninclude = ["{TOPIC}"]\n[agent]\nlog_dirs = ["{kafka.brokers[0].log_dir}"]\n'
        f'[trim]\ndelay = "0s"\n[management]\nlisten = "127.0.0.1:0"\n'
    )
    for command in (["init"], ["agent", "--once"]):
        assert run([*command, "--config", str(settings)]) == 0
    local_start = first_local_offset(kafka)
    assert local_start > 0, "nothing was trimmed, so nothing is read from the object store alone"
    return TieredTopic(kafka.client_config, (folder / "store").as_uri(), local_start)


def first_local_offset(kafka: KafkaSandbox) -> int:
    """Return the first offset that Kafka's own client sees."""
    consumer = Consumer({**kafka.client_config, "group.id": "read-records"})
    start, _ = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 10)
    consumer.close()
    return int(start)


@pytest.mark.kafka
def test_records_of_both_tiers_are_read_as_one_log(tiered: TieredTopic) -> None:
    table = tiered.read(0, RECORDS)
    assert table.column("offset").to_pylist() == list(range(RECORDS))
    assert table.column("key").to_pylist() == [str(number).encode() for number in range(RECORDS)]


@pytest.mark.kafka
def test_a_range_across_the_border_of_the_tiers_is_exact(tiered: TieredTopic) -> None:
    border = tiered.local_start
    assert tiered.read(border - 7, border + 5).column("offset").to_pylist() == list(range(border - 7, border + 5))


@pytest.mark.kafka
def test_a_range_past_the_end_is_refused_instead_of_cut_short(tiered: TieredTopic) -> None:
    with pytest.raises(OffsetOutOfRange) as refused:
        tiered.read(RECORDS - 5, RECORDS + 1)
    assert (refused.value.valid_start, refused.value.valid_end) == (0, RECORDS)


def test_a_start_above_the_end_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(InvalidRequest, match=r"start is above end.*orders-0 start=9 end=8"):
        read_records({"bootstrap.servers": "127.0.0.1:9"}, "file:///nowhere", "orders", 0, 9, 8)


@pytest.mark.kafka
@pytest.mark.parametrize(("topic", "partition"), [("read-records-of-nobody", 0), (TOPIC, 1)])
def test_a_topic_or_partition_that_is_not_there_is_named(tiered: TieredTopic, topic: str, partition: int) -> None:
    with pytest.raises(UnknownTopic, match=topic):
        tiered.read(0, 1, topic, partition)


@pytest.mark.kafka
def test_leaving_early_closes_what_was_opened(tiered: TieredTopic) -> None:
    before = set(threading.enumerate())
    batches = read_records(tiered.kafka, tiered.store, TOPIC, 0, 0, RECORDS, settings={"tier_state.topic": FACTS})
    assert next(batches).num_rows > 0
    following = {thread for thread in set(threading.enumerate()) - before if thread.name == "follower"}
    assert following
    batches.close()
    assert not any(thread.is_alive() for thread in following)


@pytest.fixture
def log(tiered: TieredTopic) -> Iterator[Log]:
    settings = {"tier_state.topic": FACTS}
    with connect(tiered.kafka["bootstrap.servers"], tiered.store, kafka=tiered.kafka, settings=settings) as opened:
        yield opened


@pytest.mark.kafka
def test_a_connection_knows_topics_bounds_and_offsets_for_times(log: Log, tiered: TieredTopic) -> None:
    topic = log.topic(TOPIC)
    assert TOPIC in log.topics()
    assert topic.partitions() == [0]
    assert (topic.bounds(0).log_start, topic.bounds(0).local_start) == (0, tiered.local_start)
    assert topic.offsets_for_time("-1h") == {0: 0}
    for late in ("2100-01-01", datetime(2100, 1, 1), 4_102_444_800_000, "4102444800000", "@4102444800000"):
        assert topic.offsets_for_time(late) == {0: None}
    with pytest.raises(errors.InvalidRequest, match="time is a datetime, ISO 8601 text, milliseconds"):
        topic.offsets_for_time("noon")


@pytest.mark.kafka
def test_arrow_takes_what_is_read_as_it_is_and_again_the_same(log: Log, tiered: TieredTopic) -> None:
    read = log.topic(TOPIC).read(since="-1h", columns=["offset", "key"])
    table = pa.table(read)
    assert table.column_names == ["offset", "key"]
    assert table.column("offset").to_pylist() == list(range(RECORDS))
    assert read.to_table().equals(table)
    assert log.topic(TOPIC).read().to_table().equals(tiered.read(0, RECORDS))


@pytest.mark.kafka
@pytest.mark.parametrize("columns", [["value"], ["timestamp", "offset"], ["topic", "partition", "timestampType"]])
def test_columns_asked_for_are_those_of_everything_and_no_others_are_made(log: Log, columns: list[str]) -> None:
    progress: list[tuple[int, int]] = []
    topic = log.topic(TOPIC)
    expected = topic.read().to_table().select(columns)
    assert topic.read(columns=columns).to_table().equals(expected)
    assert topic.read(columns=columns, progress=lambda *done: progress.append(done)).to_table().equals(expected)
    assert progress[-1] == (RECORDS, RECORDS)
    how = (Isolation.READ_COMMITTED, Tier.AUTO)
    batches = log.source().records(TOPIC, 0, Extent(Offset(0), Offset(RECORDS)), *how, columns=columns)
    assert {tuple(batch.schema.names) for batch, _ in batches} == {tuple(columns)}


@pytest.mark.kafka
def test_a_read_through_a_gateway_is_the_read_without(tiered: TieredTopic, log: Log) -> None:
    kafka = {"kafka.bootstrap.servers": tiered.kafka["bootstrap.servers"], "store.url": tiered.store}
    with Connection(settings_from({**FOR_READERS, **kafka, "tier_state.topic": FACTS})) as connection:
        settings = Gateway(listen=Address("127.0.0.1", 0))
        service = FetchService(connection.reader(connection.view()), settings, connection.clock)
        server = GatewayServer(service, settings)
        process = server.process()
        process.start()
        try:
            with connect(gateway=server.url) as through:
                topic, direct, border = through.topic(TOPIC), log.topic(TOPIC), tiered.local_start
                assert topic.partitions() == direct.partitions()
                assert topic.bounds(0) == direct.bounds(0)
                assert topic.offsets_for_time("-1h") == direct.offsets_for_time("-1h")
                queries: list[dict[str, Any]] = [
                    {},
                    {"columns": ["value", "offset"]},
                    {"start": border - 7, "end": border + 5},
                    {"start": 3, "limit": 9},
                    {"start": "latest"},
                ]
                for query in queries:
                    assert topic.read(**query).to_table().equals(direct.read(**query).to_table()), query
        finally:
            process.stop()
            assert process.join(20)
            server.close()
            service.close()


INTERRUPTED = """
import gc, json, os, signal, sys, threading, time

import tierstate

told = json.loads(sys.argv[1])
settings = {"tier_state.topic": told["facts"]}


def held():
    files = []
    for each in os.listdir("/proc/self/fd"):
        try:
            files.append(os.readlink("/proc/self/fd/" + each))
        except FileNotFoundError:
            pass  # of the listing itself
    threads = [open("/proc/self/task/" + each + "/comm").read().strip() for each in os.listdir("/proc/self/task")]
    return [sorted(each.partition(":")[0] for each in files), sorted(threads)]


def interrupted(*done):
    signal.raise_signal(signal.SIGINT)


def read(outside, progress):
    with tierstate.connect(told["bootstrap"], told["store"], settings=settings) as log:
        batches = log.topic(told["topic"]).read(progress=progress).to_batches()
        kept.append((log, log.source(), batches))  # as a prompt keeps them: nothing is closed for being forgotten
        for batch in batches:
            outside()


kept = []
read(lambda: None, None)  # what is loaded once for good
gc.collect()
before = held()
for how in [(interrupted, None), (lambda: None, interrupted)]:  # in the caller's hands, in ours
    try:
        read(*how)
    except KeyboardInterrupt as error:
        kept.append(error)  # and the traceback, with all that its frames hold
        continue
    raise AssertionError("Ctrl-C was swallowed")
gc.collect()
for _ in range(100):  # loads that ran ahead, and clients that are going down, end soon
    if held() == before:
        break
    time.sleep(0.1)
print(json.dumps([before, held()]))
"""


@pytest.mark.kafka
def test_ctrl_c_in_the_middle_of_a_read_that_is_kept_leaves_no_thread_and_no_file_open(
    tiered: TieredTopic,
) -> None:
    parameters = {"bootstrap": tiered.kafka["bootstrap.servers"], "store": tiered.store, "topic": TOPIC, "facts": FACTS}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, json.dumps(parameters)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    assert after == before


@pytest.mark.kafka
def test_a_read_of_a_log_that_is_closed_during_it_is_an_error_and_not_short(tiered: TieredTopic) -> None:
    settings = {"tier_state.topic": FACTS}
    with connect(settings=settings | {"store.url": tiered.store}, kafka=tiered.kafka) as opened:
        batches = opened.topic(TOPIC).read().to_batches()
        assert next(batches).num_rows > 0
    with pytest.raises(errors.InvalidRequest, match="closed"):
        list(batches)


@pytest.mark.kafka
def test_a_read_follows_the_tier_state_partition_it_maps_to_and_no_other(tiered: TieredTopic) -> None:
    others = set(threading.enumerate())
    settings = {"tier_state.topic": FACTS}
    with connect(settings=settings | {"store.url": tiered.store}, kafka=tiered.kafka) as opened:
        topic, reader = opened.topic(TOPIC), opened.opened()
        assert isinstance(reader, LogReader)

        def followed() -> int:
            return sum(thread.name == "follower" for thread in set(threading.enumerate()) - others)

        assert (topic.partitions(), followed()) == ([0], 0)
        assert topic.read().to_table().num_rows == RECORDS
        with pytest.raises(UnknownTopic):
            opened.topic("no-such-topic").read()
        assert followed() == 1
        assert TOPIC in opened.topics()
        assert followed() == 2


@pytest.mark.kafka
def test_nothing_read_has_the_schema_of_everything(log: Log) -> None:
    nothing = log.topic(TOPIC).read(start="latest")
    assert pa.table(nothing).schema.equals(log.topic(TOPIC).read(limit=1).to_table().schema)
    assert pa.table(nothing).num_rows == 0


@pytest.mark.kafka
def test_a_limit_and_progress_count_what_is_read(log: Log, tiered: TieredTopic) -> None:
    progress: list[tuple[int, int]] = []
    border = tiered.local_start
    read = log.topic(TOPIC).read(start=border - 7, end={0: border + 5}, progress=lambda *done: progress.append(done))
    assert read.ranges == {0: (border - 7, border + 5)}
    assert read.to_table().column("offset").to_pylist() == list(range(border - 7, border + 5))
    assert progress == sorted(progress)
    assert progress[-1] == (12, 12)
    assert log.topic(TOPIC).read(limit=9).to_table().column("offset").to_pylist() == list(range(9))


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"columns": "offset"}, "columns is a list"),
        ({"columns": ["ofset"]}, "columns are of"),
        ({"start": "17"}, "start is none of"),
        ({"end": "tomorrow"}, "end is none of"),
        ({"start": 9, "end": 3}, "start is above end"),
        ({"start": {1: 0}}, "start names an offset for each partition"),
        ({"start": 3, "since": "-1h"}, "since and start"),
        ({"limit": -1}, "limit"),
        ({"isolation": "committed"}, "isolation is"),
        ({"partitions": [7]}, "no such partition"),
    ],
)
def test_a_wrong_argument_of_a_read_is_named(log: Log, given: dict[str, object], said: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=said):
        log.topic(TOPIC).read(**given)  # type: ignore[arg-type]


@pytest.mark.kafka
def test_a_connection_without_a_reference_closes_itself(tiered: TieredTopic) -> None:
    before = set(threading.enumerate())
    settings = {"tier_state.topic": FACTS}
    batches = iter(connect(settings=settings | {"store.url": tiered.store}, kafka=tiered.kafka).topic(TOPIC).read())
    assert next(batches).num_rows > 0
    following = {thread for thread in threading.enumerate() if thread.name == "follower"} - before
    assert following
    del batches
    assert not any(thread.is_alive() for thread in following)


NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebook.ipynb"


def test_every_cell_of_the_notebook_runs(tiered: TieredTopic) -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells), "outputs go stale"
    here = f"{tiered.kafka['bootstrap.servers']!r}, {tiered.store!r}, settings={{'tier_state.topic': {FACTS!r}}}"
    names: dict[str, Any] = {}
    for cell in cells:
        text = "".join(cell["source"]).replace('"localhost:9092", "s3://events/tier"', here)
        exec(compile(text.replace('"orders"', repr(TOPIC)), NOTEBOOK.name, "exec"), names)
    assert names["table"].num_rows == names["rows"] == len(names["frame"]) == RECORDS
    assert names["bounds"].log_start < names["bounds"].local_start
    assert names["sizes"].height == RECORDS
    assert names["total"] == sum(range(RECORDS))
    assert "closed" in repr(names["log"])
