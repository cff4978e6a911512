"""One word changes in a running job, ``kafka`` to ``tierstate``, and back: the new source continues its checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.conftest import record
from tests.spark.streams import offsets_of, places_of, records_of, run
from tests.spark.tiers import Tiers

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("kafka_source")]


def test_a_job_goes_on_at_its_offsets_with_the_other_source_and_back(
    spark: SparkSession, tiers: Tiers, tmp_path: Path
) -> None:
    """The job loses and repeats no record, not even one that the broker deleted before the job changed its source."""
    name = tiers.create(f"stream-taken-over-{os.getpid()}", 2)
    options = tiers.options(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="170")

    def produce(count: int) -> None:
        for partition in (0, 1):
            tiers.produce(name, partition, [record(number) for number in range(count)])

    produce(200)
    before = run(spark, "kafka", options, tmp_path)
    assert places_of(before) == [(partition, offset) for partition in (0, 1) for offset in range(200)]
    assert offsets_of(tmp_path, max(before)) == {name: {"0": 200, "1": 200}}

    produce(300)
    expected = tiers.consumed(name)
    for partition in (0, 1):
        assert tiers.copy(name, partition)[-1].offsets.end > 300
        tiers.trim(name, partition, 300)
    with pytest.raises(PySparkException):  # the broker lacks the records that the job reads next
        run(spark, "kafka", options, tmp_path)
    ours = run(spark, "tierstate", options, tmp_path)
    assert places_of(ours) == [(partition, offset) for partition in (0, 1) for offset in range(200, 500)]
    assert records_of(ours) == [(*each[:-1], None) for each in expected if each[4] >= 200]

    produce(100)
    after = run(spark, "kafka", options, tmp_path)
    assert places_of(after) == [(partition, offset) for partition in (0, 1) for offset in range(500, 600)]
    produce(10)
    assert len(places_of(run(spark, "tierstate", options, tmp_path))) == 20
