"""Each process of Spark loads only modules that it uses: the others would be half of its start."""

from __future__ import annotations

import pickle
import subprocess
import sys

from tierstate.spark.batch import BatchReader
from tierstate.spark.options import parse_options

OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:9",
    "kafka.sasl.password": "secret",
    "tierstate.store": "file:///store",
    "subscribe": "orders",
}


def loaded_by(program: str) -> set[str]:
    """Return the packages that a process has loaded after the program."""
    end = "\nimport sys\nprint(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program + end], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_session_that_learns_the_name_of_the_source_loads_nothing_that_reads() -> None:
    modules = loaded_by("import tierstate.spark.source")
    assert not modules & {"numba", "boto3", "kafka", "confluent_kafka", "pydantic"}


def test_an_executor_loads_neither_settings_nor_what_speaks_to_kafka() -> None:
    reader = pickle.dumps(BatchReader(parse_options(OPTIONS)))
    modules = loaded_by(
        f"import pickle\nreader = pickle.loads({reader!r})\n"
        "from tierstate.fetch.piece import records\nfrom tierstate.fetch.split import read_split"
    )
    assert not modules & {"boto3", "kafka", "confluent_kafka", "pydantic"}


def test_the_daemon_loads_for_its_workers_what_starts_no_thread() -> None:
    modules = loaded_by(
        "from tierstate.spark.daemon import load\nload()\nfrom tierstate.log.lazy_kernel import Kernel\n"
        "assert Kernel.every and all(each._compiled for each in Kernel.every)"
    )
    assert {"numba", "kafka"} <= modules
    assert "pyarrow" not in modules, "it starts a thread, which a forked worker would miss"


def test_a_planner_loads_no_decoder() -> None:
    modules = loaded_by(
        "import tierstate.spark.planning, tierstate.broker.tier_topic_setup\n"
        "import tierstate.follower.open, tierstate.fetch.open, tierstate.storage.open"
    )
    assert not modules & {"numba", "boto3", "urllib3"}


def test_objects_sent_to_executors_show_no_secret() -> None:
    assert "secret" not in repr(parse_options(OPTIONS))
