"""Whole streaming queries: a stream reads to the end what a batch reads, whatever happens in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.plain_digest import PlainDigest
from tests.spark.conftest import record
from tests.spark.streams import Batches, ends, offsets_of, places_of, records_of, run
from tests.spark.tiers import Record, Tiers
from tierstate.spark.digest import DigestRange, digest_via_spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
RECORDS = 1000
JOB = """
import json, sys
from tierstate.spark.sessions import local_session
options, checkpoint, out = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
with local_session("job", 2, memory="512m") as spark:
    frame = spark.readStream.format("tierstate").options(**options).load().select("partition", "offset")
    writer = frame.writeStream.format("json").option("path", out).option("checkpointLocation", checkpoint)
    writer.start().awaitTermination()
"""


def digest_of(records: list[Record]) -> tuple[int, str]:
    digest = PlainDigest((each[4], each[5], each[6], each[0], each[1], each[7] or ()) for each in records)
    return digest.count, digest.hexdigest()


@pytest.mark.slow
def test_a_stream_to_the_end_has_the_records_of_a_batch_although_the_log_is_trimmed_under_it(
    spark: SparkSession, tiers: Tiers, tmp_path: Path
) -> None:
    name = tiers.create(f"stream-trimmed-{os.getpid()}", 2)
    for partition in (0, 1):
        tiers.produce(name, partition, [record(number) for number in range(RECORDS)])
    before = tiers.consumed(name)

    def trim_ahead(number: int) -> None:
        """Trim before the first batch is read, and again before later ones: always beyond the records read."""
        if number == 0:
            assert [tiers.copy(name, partition)[-1].offsets.end > 800 for partition in (0, 1)] == [True, True]
        for partition in (0, 1):
            tiers.trim(name, partition, min(800, 100 + 350 * number))

    options = tiers.options(subscribe=name, startingOffsets="earliest", includeHeaders="true")
    batches = run(spark, "tierstate", options | {"maxOffsetsPerTrigger": "600"}, tmp_path, meanwhile=trim_ahead)
    assert len(batches) == 4
    streamed = records_of(batches)
    assert streamed == before
    assert offsets_of(tmp_path, 3)[name] == {"0": RECORDS, "1": RECORDS}
    ranges = [DigestRange(name, partition, 0, RECORDS) for partition in (0, 1)]
    assert digest_via_spark(tiers.options(), ranges, session=spark) == {
        each: digest_of([record for record in streamed if record[3] == each.partition]) for each in ranges
    }


def test_a_batch_that_failed_is_repeated_from_the_checkpoint_with_the_same_records(
    spark: SparkSession, tiers: Tiers, tmp_path: Path
) -> None:
    name = tiers.create(f"stream-failed-{os.getpid()}")
    tiers.produce(name, 0, [record(number) for number in range(300)])
    options = tiers.options(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    batches: Batches = {}

    def fail(number: int) -> None:
        if number == 1:
            raise RuntimeError("the sink is broken")

    with pytest.raises(PySparkException, match="the sink is broken"):
        run(spark, "tierstate", options, tmp_path, into=batches, meanwhile=fail)
    tiers.copy(name, 0)
    tiers.trim(name, 0, 200)
    tiers.produce(name, 0, [record(number) for number in range(50)])
    again = run(spark, "tierstate", options, tmp_path)
    assert [each[4] for each in again[1]] == list(range(100, 200))
    assert places_of(batches | again) == [(0, offset) for offset in range(350)]


@pytest.mark.slow
def test_a_job_that_is_killed_and_started_again_loses_and_repeats_nothing(
    spark: SparkSession, tiers: Tiers, tmp_path: Path
) -> None:
    """It is killed with its JVM, in the middle of any work: no stop, no last commit."""
    name = tiers.create(f"stream-killed-{os.getpid()}", 2)
    options = tiers.options(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    for partition in (0, 1):
        tiers.produce(name, partition, [record(number) for number in range(RECORDS)])
        tiers.copy(name, partition)
    for life in (1, 2):
        done = len(list((out / "_spark_metadata").glob("*")))
        command = [sys.executable, "-c", JOB, json.dumps(options), str(checkpoint), str(out)]
        job = subprocess.Popen(command, start_new_session=True)
        try:
            while len(list((out / "_spark_metadata").glob("*"))) < done + 4:
                assert job.poll() is None, "the job ended by itself"
                time.sleep(0.1)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        for partition in (0, 1):
            tiers.trim(name, partition, 200 * life)
    rest = options | {"maxOffsetsPerTrigger": "400"}  # a batch takes a second or more, whatever is in it
    frame = spark.readStream.format("tierstate").options(**rest).load().select("partition", "offset")
    ends(frame.writeStream.format("json").option("path", str(out)).option("checkpointLocation", str(checkpoint)))
    rows = spark.read.schema("partition int, offset long").json(str(out)).collect()
    assert sorted(tuple(row) for row in rows) == [
        (partition, offset) for partition in (0, 1) for offset in range(RECORDS)
    ]
