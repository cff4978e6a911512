"""The jars of Spark's own Kafka source and Avro functions: fetched once a machine, offline afterwards."""

from __future__ import annotations

import os
from pathlib import Path

from tierstate.sandbox.artifacts import Jars, cached, sums_of
from tierstate.state.errors import Unavailable

HERE = Path(__file__).parent
RELEASE, OF_SPARK_41 = "4.2.0", "4.1.1"


def kafka_source_jars(release: str = RELEASE) -> list[Path]:
    """Return their files, for ``spark.jars``. Raises as `cached`: Unavailable on a machine that cannot fetch them."""
    every = sums_of(HERE / "kafka_source.sha256")
    sums = {name: digest for name, digest in every.items() if "sql-kafka" not in name or f"-{release}." in name}
    name, title = f"spark-kafka-source-{release}", f"Spark's Kafka source {release}"
    jars = Jars(name, title, HERE / "kafka_source.xml", release, sums, 10)
    return sorted(cached(jars).iterdir())


def kafka_source_jars_for_tests() -> list[Path]:
    """Return the jars. A machine that cannot fetch them skips the test; with TIERSTATE_CI=1 that is a failure."""
    try:
        return kafka_source_jars()
    except Unavailable:
        if os.environ.get("TIERSTATE_CI") == "1":
            raise
        return []
