"""Spark sessions that find tierstate: `session`, for users, and `local_session`, for commands, demo and tests."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from ..state.errors import InvalidRequest

PYTHON = "spark.pyspark.python"
SHORT_ERRORS = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"
"""The setting that shortens an error in a Python worker to its message."""
WORKERS = {
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.python.daemon.module": "tierstate.spark.daemon",
}
"""The time that a task waits for its Python worker: Spark's default, 15 s, was too short on a machine at a load of 15.
And the daemon that starts the workers."""
LOOPBACK = "127.0.0.1"
SHORT_RUN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""JVM options for a session of a minute, in which compiling well costs more than it saves."""
QUIET_LOG = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.repl.name = org.apache.spark.api.python.PythonGatewayServer
logger.repl.level = error
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark %p %c{1}: %m%n
"""


def session(
    app_name: str = "tierstate", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a Spark session that finds ``format("tierstate")``, and is otherwise that of `SparkSession.builder`.

    Spark looks for data sources in the workers' Python, by default ``python3``. Here the default is PYSPARK_PYTHON,
    else this interpreter, which has tierstate. On a cluster this path must exist on every machine; otherwise set
    another Python in ``config`` (``spark.pyspark.python``). Values in ``config`` replace the defaults of this function.
    ``master``: Spark's master, such as ``local[4]``; None means that of ``spark-submit``, or Spark's default. Sets
    PYSPARK_PYTHON, and PYSPARK_DRIVER_PYTHON if it is not set. Raises InvalidRequest if a session with another Python
    is running: stop that session first.
    """
    python = without_blanks((config or {}).get(PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable)
    running = SparkContext._active_spark_context
    if running is not None and running.pythonExec != python:
        raise InvalidRequest(
            "a Spark session runs already, and its workers have another Python: stop it, or begin with this one",
            running=running.pythonExec,
            wanted=python,
        )
    os.environ["PYSPARK_PYTHON"] = python
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    builder = SparkSession.Builder().appName(app_name)
    if master is not None:
        builder = builder.master(master)
    return builder.config(map={SHORT_ERRORS: "true", **WORKERS, **(config or {}), PYTHON: python}).getOrCreate()


@contextmanager
def local_session(
    app_name: str, cores: int = 2, *, memory: str = "1g", config: Mapping[str, str] | None = None, jvm: str = ""
) -> Iterator[SparkSession]:
    """Yield a session with ``cores`` task slots in one JVM of ``memory``. ``config`` replaces and extends the defaults,
    and ``jvm`` extends the options of that JVM.

    The session starts in about 7 s. Use one at a time in a process: Spark would return the running session again. Sets
    PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to this interpreter: in another one, workers might not find tierstate.
    """
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    # PySpark 4.3 warns if pandas 3 is installed; tierstate does not use pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    folder = Path(tempfile.mkdtemp(prefix="tierstate-spark-"))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = without_blanks(sys.executable)
    try:
        builder = SparkSession.Builder().master(f"local[{cores}]").appName(app_name)
        session = builder.config(map={**_local(cores, memory, folder, jvm), **(config or {})}).getOrCreate()
        try:
            yield session
        finally:
            session.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def without_blanks(python: str) -> str:
    """Return ``python`` or, if it has whitespace, the path of a script that runs it.

    The script is in a new folder that is removed at exit. Before Spark looks for data sources, it runs
    ``sh -c "command -v <python>"`` without quotes (`Utils.checkCommandAvailable`, seen on 4.3.0). If the path has a
    blank, Spark finds no data source and reports no error. A link instead of a script would not find its virtual
    environment.
    """
    if not any(letter.isspace() for letter in python):
        return python
    folder = Path(tempfile.mkdtemp(prefix="tierstate-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
    script.chmod(0o755)
    return str(script)


def _local(cores: int, memory: str, folder: Path, jvm: str) -> dict[str, str]:
    log = folder / "log4j2.properties"
    log.write_text(QUIET_LOG)
    return {
        **WORKERS,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log.as_uri()} {jvm}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
    }
