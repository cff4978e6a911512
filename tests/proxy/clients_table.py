"""The clients of `docs/proxy.md`: those that read equal before a trim and after it, with versions, starts and the date.

python -m tests.proxy.clients_table          # run all of them, and write clients.json: some thirty minutes

A client that is skipped, because this machine cannot have it, keeps its entry.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import confluent_kafka

from tests.proxy.clients import BORDER, CLIENTS, EARLIEST_WAY, GROUP, NO_BROKERS, TIME, WAYS
from tests.proxy.other_clients import GO, KAFKA_PYTHON, NODE, RUST
from tests.servers.java_clients import FLINK
from tests.servers.kafka_source import RELEASE
from tierstate.sandbox.artifacts import RELEASES

RESULTS = Path(__file__).with_name("clients.json")
FILES = ("test_clients.py", "test_clients_from_anywhere.py", "test_without_brokers.py")
TESTS = {
    "test_a_client_reads_what_it_read_before_the_trim": EARLIEST_WAY,
    "test_a_client_reads_large_records_and_times_of_append": EARLIEST_WAY,
    "test_a_client_begins_at_borders": BORDER,
    "test_a_client_begins_at_a_time": TIME,
    "test_a_group_goes_on_where_it_committed_in_the_remote_tier": GROUP,
    "test_a_client_reads_all_that_was_copied_and_begins_anywhere": NO_BROKERS,
}
"""The tests of each client, with the start that they prove."""


def versions() -> dict[str, str]:
    """Return the version of each client, from the files that pin it."""
    node = json.loads((NODE / "package.json").read_text())["dependencies"]
    go = dict(re.findall(r"^\s*github.com/(\S+) v(\S+)$", (GO / "go.mod").read_text(), re.M))
    (rust,) = re.findall(r'rskafka = "=([^"]+)"', (RUST / "Cargo.toml").read_text())
    return {
        "librdkafka": str(confluent_kafka.libversion()[0]),
        "kafka-python": version("kafka-python"),
        "older kafka-python": KAFKA_PYTHON.split()[0].partition("==")[2],
        "java": RELEASES[0],
        "older java": RELEASES[-1],
        "java 3.4.1": "3.4.1",
        "java 2.8.2": "2.8.2",
        "franz-go": go["twmb/franz-go"],
        "sarama": go["IBM/sarama"],
        "kafka-go": go["segmentio/kafka-go"],
        "kafkajs": node["kafkajs"],
        "@platformatic/kafka": node["@platformatic/kafka"],
        "rskafka": rust,
        "aiokafka": version("aiokafka"),
        "kcat": "1.7.1",
        "librdkafka in C": str(confluent_kafka.libversion()[0]),
        "spark's kafka source": RELEASE,
        "flink's kafka source": FLINK,
    }


def outcomes(junit: Path) -> dict[str, dict[str, set[str]]]:
    """Return the outcomes of each client's cases by start: ``passed``, ``failed`` or ``skipped``."""
    results: dict[str, dict[str, set[str]]] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        name, _, parameters = str(case.get("name")).removesuffix("]").partition("[")
        if name in TESTS:
            client = parameters.partition("-read_")[0]
            children = {child.tag for child in case}
            outcome = "failed" if children & {"failure", "error"} else "skipped" if "skipped" in children else "passed"
            results.setdefault(client, {}).setdefault(TESTS[name], set()).add(outcome)
    return results


def entry(client: str, results: dict[str, set[str]], known: dict[str, object] | None) -> dict[str, object] | None:
    """Return what the table has of a client, after a run. None: it has failed. ``known``: the entry before the run."""
    outcome_set = set().union(*results.values())
    if "failed" in outcome_set:
        return None
    if "skipped" in outcome_set or not results:
        return known
    today = datetime.now(UTC).date().isoformat()
    return {"version": versions()[client], "ways": [way for way in WAYS[client] if way in results], "date": today}


def run() -> int:
    """Run all clients, and write what passed. Return 1 if one failed."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "clients.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "slow or not slow", f"--junitxml={junit}"]
        command += ["-p", "no:cacheprovider", "-k", " or ".join(TESTS)]
        subprocess.run([*command, *(str(Path(__file__).with_name(file)) for file in FILES)], check=False)
        results = outcomes(junit)
    entries = {client: entry(client, results.get(client, {}), known.get(client)) for client in CLIENTS}
    RESULTS.write_text(json.dumps({name: read for name, read in entries.items() if read}, indent=1) + "\n")
    return int(any("failed" in each for ways in results.values() for each in ways.values()))


if __name__ == "__main__":
    sys.exit(run())
