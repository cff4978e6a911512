"""The jars of Spark's own Kafka source and Avro functions: fetched once a machine, offline afterwards."""

from __future__ import annotations

import os
from pathlib import Path

from tierstate.sandbox.artifacts import Jars, cached, sums_of
from tierstate.state.errors import Unavailable

HERE = Path(__file__).parent
RELEASE = "4.2.0"


def kafka_source_jars() -> list[Path]:
    """Return their files, for ``spark.jars``. Raises as `cached`: Unavailable on a machine that cannot fetch them."""
    name = f"spark-kafka-source-{RELEASE}"
    sums = sums_of(HERE / "kafka_source.sha256")
    jars = Jars(name, f"Spark's Kafka source {RELEASE}", HERE / "kafka_source.xml", RELEASE, sums, 10)
    return sorted(cached(jars).iterdir())


def kafka_source_jars_for_tests() -> list[Path]:
    """Return the jars. A machine that cannot fetch them skips the test; with TIERSTATE_CI=1 that is a failure."""
    try:
        return kafka_source_jars()
    except Unavailable:
        if os.environ.get("TIERSTATE_CI") == "1":
            raise
        return []
