"""The clients of `docs/proxy.md`: those that read equal before a trim and after it, with their versions and the date.

python -m tests.proxy.clients_table          # run all of them, and write clients.json: some twenty minutes

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

from tests.proxy.clients import CLIENTS
from tests.proxy.other_clients import GO, KAFKA_PYTHON, NODE, RUST
from tests.servers.java_clients import FLINK
from tests.servers.kafka_source import RELEASE
from tierstate.sandbox.artifacts import RELEASES

RESULTS = Path(__file__).with_name("clients.json")
TEST = "test_a_client_reads_what_it_read_before_the_trim"


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
        "spark's kafka source": RELEASE,
        "flink's kafka source": FLINK,
    }


def outcomes(junit: Path) -> dict[str, set[str]]:
    """Return the outcomes of each client's cases: ``passed``, ``failed`` or ``skipped``."""
    outcomes_by_client: dict[str, set[str]] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        name, _, parameters = str(case.get("name")).partition("[")
        if name == TEST:
            client = next(each for each in CLIENTS if parameters.startswith(f"{each}-read_"))
            children = {child.tag for child in case}
            outcome = "failed" if children & {"failure", "error"} else "skipped" if "skipped" in children else "passed"
            outcomes_by_client.setdefault(client, set()).add(outcome)
    return outcomes_by_client


def run() -> int:
    """Run all clients, and write what passed. Return 1 if one failed."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "clients.xml"
        test = str(Path(__file__).with_name("test_clients.py"))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            test,
            "-k",
            TEST,
            "-m",
            "slow or not slow",
            f"--junitxml={junit}",
        ]
        subprocess.run([*command, "-p", "no:cacheprovider"], check=False)
        outcome_sets = outcomes(junit)
    today, failed = datetime.now(UTC).date().isoformat(), False
    for client, outcome_set in outcome_sets.items():
        if outcome_set == {"passed"}:
            known[client] = {"version": versions()[client], "date": today}
        elif "failed" in outcome_set:
            failed = True
            known.pop(client, None)
    RESULTS.write_text(json.dumps({client: known[client] for client in CLIENTS if client in known}, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(run())
