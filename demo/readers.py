"""The readers whose records are compared. None trusts another, and none trusts tierstate's own digest."""

from __future__ import annotations

import base64
import subprocess
import urllib.parse
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition

from .house import PARTITIONS, TOPIC, DemoFailed, House, get
from .record_digest import Records, encode
from .screen import Update

PAGE_BYTES = 8 * 1024 * 1024


def read_with_kafka_consumer(bootstrap: str, starts: dict[int, int], ends: dict[int, int], told: Update) -> Records:
    """Read by a plain consumer that knows nothing of tiers."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
        }
    )
    records, total = Records(), sum(ends.values()) - sum(starts.values())
    open_partitions = {p for p in starts if starts[p] < ends[p]}
    consumer.assign([TopicPartition(TOPIC, p, starts[p]) for p in open_partitions])
    while open_partitions:
        for message in consumer.consume(10_000, 1.0):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                    continue
                raise DemoFailed(f"the plain consumer failed: {error.str()}")
            kind, timestamp = message.timestamp()
            headers = [(name, content) for name, content in message.headers() or []]
            # librdkafka has 1 for create time and 2 for append time; Kafka's batches have 0 and 1
            record = encode(message.offset(), timestamp, kind - 1, message.key(), message.value(), headers)
            records.add(message.partition(), message.offset(), record)
        told(f"{records.count:,} records", records.count / max(1, total))
    consumer.close()
    return records


def read_with_consume(house: House, total: int, told: Update) -> Records:
    """Read by ``tierstate consume``: both tiers as one log, as JSON lines."""
    command = house.command("consume", TOPIC, "--json", "--encoding", "base64")
    records = Records()
    with (house.folder / "consume.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert process.stdout is not None
        for line in process.stdout:
            row = orjson.loads(line)
            records.add(row["partition"], row["offset"], _of_json(row))
            if records.count % 5000 == 0:
                told(f"{records.count:,} records", records.count / total)
        if process.wait() != 0:
            raise DemoFailed(f"tierstate consume failed:\n{(house.folder / 'consume.log').read_text()[-2000:]}")
    return records


def _of_json(row: dict[str, Any]) -> bytes:
    headers = [(h["key"], _bytes(h["value"])) for h in row.get("headers") or []]
    key, value = _bytes(row.get("key")), _bytes(row.get("value"))
    return encode(row["offset"], row["timestamp"], row["timestampType"], key, value, headers)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def read_gateway_json(gateway: str, ends: dict[int, int], told: Update) -> Records:
    """Read page by page, as binary JSON (the REST Proxy's shape)."""

    def decode(body: bytes, found: Records) -> None:
        for row in orjson.loads(body):
            found.add(row["partition"], row["offset"], _of_json(row))

    return _pages(gateway, ends, "application/vnd.kafka.binary.v2+json", decode, told)


def read_gateway_arrow(gateway: str, ends: dict[int, int], told: Update) -> Records:
    """Read page by page, as an Arrow stream."""

    def decode(body: bytes, found: Records) -> None:
        with pa.ipc.open_stream(body) as stream:
            for batch in stream:
                add_arrow(batch, found)

    return _pages(gateway, ends, "application/vnd.apache.arrow.stream", decode, told)


def add_arrow(batch: pa.RecordBatch, found: Records) -> None:
    """Add the rows of a batch in the schema of Spark's Kafka source; its timestamps have any unit."""
    columns = {
        name: batch.column(name).to_pylist() for name in ("partition", "offset", "timestampType", "key", "value")
    }
    times = batch.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    headers = batch.column("headers").to_pylist() if "headers" in batch.schema.names else [None] * batch.num_rows
    for at, offset in enumerate(columns["offset"]):
        named = [(each["key"], each["value"]) for each in headers[at] or []]
        record = encode(
            offset, times[at], columns["timestampType"][at], columns["key"][at], columns["value"][at], named
        )
        found.add(columns["partition"][at], offset, record)


def _pages(
    gateway: str, ends: dict[int, int], accept: str, decode: Callable[[bytes, Records], None], told: Update
) -> Records:
    records, total = Records(), sum(ends.values())
    for partition in range(PARTITIONS):
        base = f"{gateway}/v1/topics/{urllib.parse.quote(TOPIC)}/partitions/{partition}"
        offset = 0
        while offset < ends[partition]:
            body, headers = get(f"{base}/records?offset={offset}&max_bytes={PAGE_BYTES}", accept)
            decode(body, records)
            following = int(headers["x-next-offset"])
            if following <= offset:
                raise DemoFailed(f"the gateway did not advance at {TOPIC}-{partition} offset {offset}")
            offset = following
            told(f"{records.count:,} records", records.count / total)
    return records


def ranges_of(house: House) -> dict[int, list[tuple[int, int]]]:
    """Return the remote segments' offset ranges per partition: start, end (not included)."""
    ranges = {}
    for partition in range(PARTITIONS):
        segments = house.json("segments", f"{TOPIC}:{partition}")
        ranges[partition] = [(s["offsets"]["start"], s["offsets"]["end"] + 1) for s in segments]
    return ranges
