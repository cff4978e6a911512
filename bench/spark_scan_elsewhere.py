"""The first query of `spark-scan` with S3, with one core, and against Kafka's own tiers (`LocalTieredStorage`).

S3 is a versitygw on this machine. The CPU of brokers and of the versitygw is not counted. Medians of three runs.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tierstate.sandbox.kafka import KafkaSandbox

from .agent_site import Site, until
from .bucket import Bucket, bucket
from .native_tiers import kafkas_own_tiers
from .rows import Row
from .spark_scan import (
    CORES,
    KAFKA,
    LOADS,
    PARTITIONS,
    QUERIES,
    QUICK_BYTES,
    RUNS,
    SEGMENT_BYTES,
    Topic,
    compared,
    fill,
    from_kafka,
    from_ours,
    in_turns,
    range_of,
    session_of,
    values_of,
)

QUERY = QUERIES[0]
TIERED = {"remote_storage_enable": "true", "local_retention_bytes": "1"}
WAIT_S = 300.0


def measure(quick: bool = False) -> list[Row]:
    """About 10 minutes, 6 GB of disk."""
    rows: list[Row] = []
    runs = 1 if quick else RUNS
    for load in LOADS:
        with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name:
            folder = Path(name)
            properties = kafkas_own_tiers(folder / "kip405")
            with KafkaSandbox(folder=folder / "kafka", properties=properties) as kafka, bucket(folder) as s3:
                topic = Topic(Site(kafka, folder / "site", s3.section), load, quick)
                with session_of(CORES) as spark:
                    rows += compared(spark, topic, QUERY, runs, " (S3)")
                _as_folder(topic, s3)
                with session_of(1) as spark:
                    rows += compared(spark, topic, QUERY, runs, " (one core)")
                twin = Twin(topic, quick)
                with session_of(CORES) as spark:
                    rows += _beside_own_tiers(spark, topic, twin, runs)
    return rows


def _as_folder(topic: Topic, s3: Bucket) -> None:
    """Use the bucket as a folder: its objects are files."""
    of_s3 = ("tierstate.store", "tierstate.endpoint", "tierstate.region")
    kept = {name: value for name, value in topic.options.items() if not name.startswith(of_s3)}
    topic.options = kept | {"tierstate.store": (s3.folder / "tiers").as_uri()}


class Twin:
    """The same records in a topic of Kafka's own tiers. ``ends``: the broker has earlier records only there."""

    name = "kafkas"

    def __init__(self, topic: Topic, quick: bool) -> None:
        site, load = topic.site, topic.load
        site.create(self.name, PARTITIONS, QUICK_BYTES if quick else SEGMENT_BYTES, **TIERED)
        fill(site, self.name, load, load.records // 10 if quick else load.records, values_of(load))
        expected = [end * 2 // 3 for end in topic.ends]
        until(lambda: all(mine >= end for mine, end in zip(self._starts(site), expected, strict=True)), WAIT_S)
        self.ends = [min(pair) for pair in zip(self._starts(site), topic.ends, strict=True)]

    def _starts(self, site: Site) -> list[int]:
        folders = [site.log_dir / f"{self.name}-{number}" for number in range(PARTITIONS)]
        return [min(int(path.stem) for path in folder.glob("*.log")) for folder in folders]


def _beside_own_tiers(spark: SparkSession, topic: Topic, twin: Twin, runs: int) -> list[Row]:
    bootstrap = topic.site.kafka.bootstrap
    sides = {
        KAFKA: partial(from_kafka, spark, bootstrap, QUERY, range_of(twin.name, twin.ends)),
        "ours": partial(from_ours, spark, topic.options, QUERY, range_of(topic.name, twin.ends)),
    }
    spent = in_turns(spark, sides, QUERY, runs)
    (seconds, cpu), (kafkas, kafkas_cpu) = spent["ours"], spent[KAFKA]
    records = sum(twin.ends)
    what = f"{topic.load.name}, {QUERY.name}, Kafka's own tiers"
    return [
        Row(what, records / seconds, "records/s", records / kafkas, KAFKA),
        Row(f"{what}, CPU", cpu * 1e6 / records, "µs a record, less is better", kafkas_cpu * 1e6 / records, KAFKA),
    ]
