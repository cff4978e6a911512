"""Spark's structured streaming into Iceberg, in a process of its own: Iceberg's runtime needs another Spark than ours.

The first line of stdin has the settings of the session. Each other line is a stream to run to its end (`streamed`);
the answer on stdout is the number of its records.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

RECORD = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def main() -> None:
    builder = SparkSession.Builder().master("local[2]")
    for name, value in json.loads(sys.stdin.readline()).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        print(streamed(spark, **json.loads(line)), flush=True)


def streamed(spark: SparkSession, *, kind: str, source: dict[str, str], schema: str, table: str, state: str) -> int:
    """Write all records of a topic to a new table. ``kind``: avro and json (typed values), flat or upsert."""
    frame = spark.readStream.format("kafka").options(**source).load()
    value = from_avro("value", schema) if kind == "avro" else F.from_json(F.col("value").cast("string"), schema)
    rows = frame.withColumn("value", value).select(*RECORD)
    if kind == "flat":
        others = [F.col(name).alias(f"kafka_{name}") for name in RECORD if name != "value"]
        rows = rows.select("value.*", *others)
    spark.createDataFrame([], rows.schema).writeTo(table).using("iceberg").create()
    writer: Any = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", state)
    if kind == "upsert":
        query = writer.foreachBatch(lambda batch, number: _merge(batch, table)).start()
    else:
        query = writer.format("iceberg").toTable(table)
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def _merge(batch: DataFrame, table: str) -> None:
    newest = batch.groupBy("key").agg(F.max_by(F.struct(*RECORD), "offset").alias("row")).select("row.*")
    newest.createOrReplaceTempView("newest")
    newest.sparkSession.sql(
        f"MERGE INTO {table} t USING newest s ON t.key = s.key WHEN MATCHED AND s.value IS NULL THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.value IS NOT NULL THEN INSERT *"
    )


if __name__ == "__main__":
    main()
