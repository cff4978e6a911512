"""How long a user waits for the first record: commands, Python, and a Spark query of ten records.

The topic has three segments of 1 MiB, copied into a directory. Commands and programs are measured from their start to
their end, medians of seven. The Spark session is warm, `local[2]`; the peer is Spark's own Kafka source.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tierstate.runtime.settings_load import load_settings
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.spark.options import options_of
from tierstate.storage.object_store import MIB

from .agent_site import TIERSTATE, Site, spent_by
from .rows import Row
from .spark_scan import KAFKA, QUERIES, from_kafka, from_ours, range_of, session_of

TOPIC = "started"
RUNS = 7
READ_RECORDS = """
from tierstate import read_records
next(read_records({kafka!r}, {store!r}, {topic!r}, 0, 0, 1, settings={settings!r}))
"""


def measure(quick: bool = False) -> list[Row]:
    """The run takes about a minute."""
    runs = 1 if quick else RUNS
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name:
        folder = Path(name)
        with KafkaSandbox(folder=folder / "kafka") as kafka:
            site = Site(kafka, folder / "site")
            site.create(TOPIC, 1, MIB)
            site.fill(TOPIC, 1, MIB, 3)
            config = site.begin(TOPIC)
            site.once(config)
            rows = _processes(config, runs)
            return rows + _queries(kafka.bootstrap, config, runs)


def _processes(config: Path, runs: int) -> list[Row]:
    settings = load_settings(config, (), os.environ, None, None)
    settings_given = {"tier_state.topic": settings.tier_state.topic}
    where = {"kafka": dict(settings.kafka), "store": settings.store.url, "topic": TOPIC, "settings": settings_given}
    flags = ["--config", str(config)]
    commands = {
        "import tierstate.spark.batch": ([sys.executable, "-c", "import tierstate.spark.batch"], "", "<= 0.5"),
        "tierstate consume T:P -n 1": ([*TIERSTATE, "consume", f"{TOPIC}:0", "-n", "1", *flags], "<= 1", ""),
        "tierstate digest T": ([*TIERSTATE, "digest", TOPIC, *flags], "", ""),
        "read_records, one record": ([sys.executable, "-c", READ_RECORDS.format(**where)], "", ""),
    }
    rows = []
    for what, (command, goal, cpu_goal) in commands.items():
        spent = [spent_by(command) for _ in range(runs + 1)][1:]
        rows.append(Row(what, statistics.median(each.seconds for each in spent), "s, less is better", goal=goal))
        cpu = statistics.median(each.cpu_s for each in spent)
        rows.append(Row(f"{what}, CPU", cpu, "s, less is better", goal=cpu_goal))
    return rows


def _queries(bootstrap: str, config: Path, runs: int) -> list[Row]:
    options = options_of(load_settings(config, (), os.environ, None, None))
    offset_options = range_of(TOPIC, [10])
    with session_of(2) as spark:
        took: dict[str, list[float]] = {"ours": [], KAFKA: []}
        for _ in range(runs + 1):
            took["ours"].append(_timed(lambda: from_ours(spark, options, QUERIES[0], offset_options).count()))
            took[KAFKA].append(_timed(lambda: from_kafka(spark, bootstrap, QUERIES[0], offset_options).count()))
    ours, theirs = (statistics.median(each[1:]) for each in took.values())
    return [Row("a Spark query of ten records, warm", ours, "s, less is better", theirs, KAFKA, "<= 0.45")]


def _timed(query: Callable[[], int]) -> float:
    began = time.perf_counter()
    if query() != 10:
        raise SystemExit("another number of records")
    return time.perf_counter() - began
