"""Spark 4.1 with Iceberg's own reader, in an environment of its own: made once a machine, offline afterwards.

<cache>/tierstate/spark-4.1.4.lock      held while a process makes it
<cache>/tierstate/spark-4.1.4/          a virtual environment; appears whole, with the file `made`
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tierstate.sandbox.artifacts import Jars, cache_folder, cached, find_java, only_one, sums_of
from tierstate.state.errors import Unavailable

HERE = Path(__file__).parent
SPARK, RUNTIME = "4.1.4", "1.12.0"
NEEDED = (f"pyspark=={SPARK}", "numpy", "pandas<3", "pyarrow")
QUERY = """\
import json, sys
import pyarrow as pa
from pyspark.sql import SparkSession

said = json.load(sys.stdin)
builder = SparkSession.builder.master("local[2]")
for name, value in said["config"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

def answered(query):
    for _ in range(20):
        try:
            return spark.sql(query).toArrow()
        except Exception as error:  # a follower merged manifests that Spark rewrites: Iceberg tells people to try again
            if "could not be found in the latest snapshot" not in str(error):
                raise
    return spark.sql(query).toArrow()

for at, query in enumerate(said["queries"]):
    found = answered(query)
    with pa.OSFile(f"{said['into']}/{at}.arrow", "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
        writer.write_table(found)
spark.stop()
"""


def rows_by_spark(uri: str, queries: Sequence[str], into: Path) -> list[pa.Table]:
    """Return Spark's answers about the tables of a REST catalog, there called ``lake``. ``into`` is an empty folder."""
    catalog = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": uri,
    }
    return rows_of_catalog(catalog, queries, into)


def rows_of_catalog(
    catalog: Mapping[str, str], queries: Sequence[str], into: Path, jars: Sequence[Path] = ()
) -> list[pa.Table]:
    """Return the same for any catalog, by its settings for Spark. ``jars``: those that it needs besides Iceberg's."""
    python = _environment()
    config = {
        "spark.jars": ",".join(map(str, [_jar(), *jars])),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **catalog,
    }
    environment = {
        "PATH": f"{Path(find_java()).parent}:/usr/bin:/bin",
        "HOME": str(into),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if "JAVA_HOME" in os.environ:
        environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
    query = json.dumps({"config": config, "queries": list(queries), "into": str(into)})
    done = subprocess.run(
        [str(python), "-c", QUERY], input=query, env=environment, cwd=into, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [pa.ipc.open_file(into / f"{at}.arrow").read_all() for at in range(len(queries))]


def needs_spark_iceberg() -> None:
    """Skip the test by name on a machine that cannot have it; with TIERSTATE_CI=1 it fails."""
    try:
        _jar()
        _environment()
    except Unavailable as error:
        if os.environ.get("TIERSTATE_CI") == "1":
            raise
        pytest.skip(str(error))


def _jar() -> Path:
    sums = sums_of(HERE / "spark_iceberg.sha256")
    jars = Jars(f"spark-iceberg-{RUNTIME}", "Iceberg for Spark 4.1", HERE / "spark_iceberg.xml", RUNTIME, sums, 48)
    return next(cached(jars).glob("*.jar"))


def _environment() -> Path:
    """Return the path of its Python."""
    home = cache_folder() / f"spark-{SPARK}"
    if not (home / "made").exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with only_one(home.with_name(home.name + ".lock")):
            if not (home / "made").exists():
                _make(home)
    return home / "bin" / "python"


def _make(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)  # left by a killed process: we hold the lock
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *NEEDED]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"Spark {SPARK} cannot be installed here", reason=done.stderr.strip()[-500:])
    (home / "made").touch()
