"""The Spark side of the demo: one session that reads both tiers, digests what it read, and runs the pipeline job.

A process of its own (`python -m demo.pipeline`), as a job would be: a JSON request as argument, the result on stdout.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tierstate.spark.sessions import SHORT_RUN, local_session

from .flights import Answer
from .house import TOPIC, DemoFailed, House
from .readers import add_arrow
from .record_digest import Records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Ranges = dict[int, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class SparkResult:
    """``digests``: (partition, start, end) to record count and digest; start 0 and end 2^63-1 is a whole partition."""

    digests: dict[tuple[int, int, int], tuple[int, str]]
    answer: list[Answer]
    read_seconds: float


WHOLE = (0, 2**63 - 1)


def run_spark(house: House, ranges: Ranges, parquet: Path) -> SparkResult:
    """Run the job in its own process. Raises DemoFailed with the end of what it printed."""
    request = {
        "bootstrap": house.bootstrap,
        "store": house.store.as_uri(),
        "ranges": ranges,
        "parquet": str(parquet),
    }
    log = house.folder / "spark.log"
    process = house.spawn_python("spark", "demo.pipeline", json.dumps(request))
    out, _ = process.communicate(timeout=600)
    if process.returncode != 0:
        # without the JVM's own stack: the cause is in the other lines
        lines = [line for line in log.read_text(errors="replace").splitlines() if not line.lstrip().startswith("at ")]
        raise DemoFailed(f"the Spark job ended with {process.returncode}:\n" + "\n".join(lines)[-3000:])
    result = json.loads(out)
    return SparkResult(
        {(partition, start, end): (count, digest) for partition, start, end, count, digest in result["digests"]},
        sorted(Answer(**line) for line in result["answer"]),
        result["read_seconds"],
    )


def main() -> None:
    """Read, digest, aggregate, write Parquet."""
    request = json.loads(sys.argv[1])
    with local_session("tierstate demo", jvm=SHORT_RUN) as spark:
        print(json.dumps(_tell(spark, request)))


def _tell(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    ranges = {int(partition): [(a, b) for a, b in parts] for partition, parts in request["ranges"].items()}
    frame = (
        spark.read.format("tierstate")
        .option("kafka.bootstrap.servers", request["bootstrap"])
        .option("subscribe", TOPIC)
        .option("tierstate.store", request["store"])
        .option("tierstate.lease", "0")  # no agent runs now that would let anything expire; what it knew is compared
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .load()
    )
    began = time.monotonic()
    digests = _digests(frame, ranges)
    read_seconds = time.monotonic() - began
    answer = _job(frame, Path(request["parquet"]))
    return {
        "digests": [[*key, *value] for key, value in digests.items()],
        "answer": [asdict(line) for line in answer],
        "read_seconds": read_seconds,
    }


def _digests(frame: DataFrame, ranges: Ranges) -> dict[tuple[int, int, int], tuple[int, str]]:
    """Each partition is gathered in one task, sorted by offset there, and digested by the demo's own code."""

    def digest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathered = list(batches)
        if not gathered:
            return
        records = Records()
        for batch in pa.Table.from_batches(gathered).sort_by("offset").combine_chunks().to_batches():
            add_arrow(batch, records)
        for partition in records.offsets:
            for start, end in [WHOLE, *ranges.get(partition, [])]:
                part = records.digest(partition, start, end)
                count = sum(1 for offset in records.offsets[partition] if start <= offset < end)
                yield pa.RecordBatch.from_pylist(
                    [{"partition": partition, "start": start, "end": end, "count": count, "digest": part}]
                )

    schema = "partition long, start long, end long, count long, digest string"
    rows = frame.repartition(3, "partition").mapInArrow(digest, schema).collect()
    return {(row["partition"], row["start"], row["end"]): (row["count"], row["digest"]) for row in rows}


def _job(frame: DataFrame, parquet: Path) -> list[Answer]:
    """Flights, mean departure delay and cancellations by month and carrier, over both tiers."""
    from pyspark.sql import functions as F

    fields = "month int, carrier string, dep_time int, dep_delay int"
    flights = frame.select(F.from_json(frame["value"].cast("string"), fields).alias("flight")).select("flight.*")
    answer = (
        flights.groupBy("month", "carrier")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.avg("dep_delay").alias("mean_delay"),
            F.sum(F.col("dep_time").isNull().cast("int")).alias("cancelled"),
        )
        .orderBy("month", "carrier")
        .coalesce(1)
    )
    answer.write.mode("overwrite").parquet(str(parquet))
    written = frame.sparkSession.read.parquet(str(parquet))
    return sorted(Answer(**row.asDict()) for row in written.collect())


if __name__ == "__main__":
    main()
