"""A Spark cluster of separate processes reads both tiers as docs/spark.md says; killed processes lose no record."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.consumer.tiered_cluster import TieredCluster
from tests.docs.blocks import executed
from tests.servers.store_programs import INSTALL, VERSITYGW, has_installer
from tests.servers.store_server import versitygw
from tests.spark.spark_cluster import SPARK_HOME, SparkCluster, make_environment, plain_environment
from tests.wheels import build_wheel
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(1200),  # the first test also makes an environment and packs it
    pytest.mark.skipif(not has_installer(VERSITYGW), reason=f"versitygw needs {INSTALL['go']}"),
]
KEY, SECRET, BUCKET = "a-spark-user", "and-its-secret-key", "read-by-spark"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
"""The credentials of the driver and of each node, as `spark-env.sh` sets them: they are in no message of Spark's."""
RECORDS, PARTITIONS = 400, 4
TASKS, SLOTS = 8, 2
PATIENCE_S = 400.0


@dataclass
class Job:
    """A submitted job. ``flags`` has a file for each task that began; held tasks wait for ``flags``-go."""

    process: subprocess.Popen[str]
    flags: Path
    output: Path

    def begun(self, tasks: int) -> None:
        until(lambda: len(list(self.flags.iterdir())) >= tasks or self.process.poll() is not None)
        assert self.process.poll() is None, self.output.read_text()

    def found(self) -> list[list[int]]:
        """Let held tasks go on. Return the job's result."""
        Path(f"{self.flags}-go").touch()
        self.process.wait(PATIENCE_S)
        printed_text = self.output.read_text()
        assert self.process.returncode == 0, printed_text
        line = next(line for line in printed_text.splitlines() if line.startswith('{"found"'))
        # a process that is killed may have written the rest of the line
        answer: list[list[int]] = json.JSONDecoder().raw_decode(line)[0]["found"]
        return answer


@dataclass
class Site:
    """Brokers, a store that asks for credentials, a cluster, and the folder from which jobs are submitted."""

    kafka: KafkaSandbox
    folder: Path
    spark: SparkCluster
    store: dict[str, str | bool]
    commands: str
    jobs: list[Job] = field(default_factory=list)

    def options(self, topic: str, cluster: TieredCluster, **more: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "tierstate.store": str(self.store["url"]),
            "tierstate.store.endpoint": str(self.store["endpoint"]),
            "tierstate.store.region": str(self.store["region"]),
            "tierstate.store.path_style": "true",
            "tierstate.tier_state_topic": cluster.facts,
            "subscribe": topic,
            "minPartitions": str(TASKS),
        } | {name.replace("__", "."): value for name, value in more.items()}

    def submit(self, options: dict[str, str], hold: bool = False, archive: bool = False, **config: str) -> Job:
        """Submit as docs/spark.md says, with this master. Without the archive the environment is where it was made, in
        a folder that all nodes share: unpacking takes half a minute.
        """
        number = len(self.jobs) + 1
        flags, events = self.folder / f"flags-{number}", self.folder / "events"
        flags.mkdir()
        events.mkdir(exist_ok=True)
        request = {"options": options, "flags": str(flags), "hold": hold, "config": {}}
        more = {
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": events.as_uri(),
        } | {name.replace("__", "%").replace("_", ".").replace("%", "_"): value for name, value in config.items()}
        shutil.copyfile(Path(__file__).with_name("cluster_job.py"), self.folder / "job.py")
        command = self.commands.replace("spark://master:7077", self.spark.url)
        if not archive:
            command = re.sub(r"  --archives .*\n", "", command).replace("./environment", f"{self.folder}/environment")
        conf = " ".join(f"--conf {name}={value}" for name, value in more.items())
        command = re.sub(r"job\.py\s*$", f"{conf} job.py '{json.dumps(request)}'", command)
        environment = plain_environment(self.folder) | CREDENTIALS
        environment["PATH"] = f"{SPARK_HOME / 'bin'}:{environment['PATH']}"
        output = self.folder / f"job-{number}.log"
        with open(output, "w") as file:
            process = subprocess.Popen(
                ["bash", "-euc", command],
                cwd=self.folder,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        job = Job(process, flags, output)
        self.jobs.append(job)
        return job

    def events(self) -> str:
        """Return the event log of the last job."""
        return max((self.folder / "events").iterdir(), key=lambda file: file.stat().st_mtime).read_text()


def until(done: Any, patience_s: float = PATIENCE_S) -> None:
    ends = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def site(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("spark-cluster")
    pack, submit = (block.code for block in executed("docs/spark.md", __file__))
    building, making, installing, *then = pack.splitlines()
    assert (building, making, installing) == (
        "make wheel",
        "python3 -m venv environment",
        "environment/bin/pip install \"$(echo dist/tierstate-*.whl)[columns]\" 'pandas<3'",
    )
    make_environment(folder / "environment", build_wheel(folder / "wheel"))
    subprocess.run(["bash", "-euc", "\n".join(then)], cwd=folder, env=plain_environment(folder), check=True)
    with ExitStack() as opened:
        server = opened.enter_context(versitygw(folder / "gateway", KEY, SECRET))
        session = boto3.session.Session(KEY, SECRET, region_name="us-east-1")
        session.client("s3", endpoint_url=server.url).create_bucket(Bucket=BUCKET)
        store: dict[str, str | bool] = {"url": f"s3://{BUCKET}", "endpoint": server.url, "region": "us-east-1"}
        store |= {"path_style": True, "access_key_id": KEY, "secret_access_key": SECRET}
        spark = opened.enter_context(SparkCluster(folder / "nodes", environment=CREDENTIALS))
        yield Site(kafka, folder, spark, store, submit)


@pytest.fixture(autouse=True)
def no_job_outlives_its_test(site: Site) -> Iterator[None]:
    """A job would keep the cores for which the next one waits."""
    yield
    for job in site.jobs:
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait()


def tiered(site: Site, name: str) -> tuple[TieredCluster, str]:
    """Return a topic in two tiers, with facts of its own."""
    cluster = TieredCluster(site.kafka, site.folder / name, f"_tier-state-{name}", site.store)
    topic, _ = cluster.tiered("t", RECORDS, PARTITIONS)
    return cluster, topic


def expected(records: int = RECORDS) -> list[list[int]]:
    """Return the records that `TieredCluster.produce` wrote."""
    records_expected = []
    for partition in range(PARTITIONS):
        values = [f"{partition}/{number} ".ljust(200, ".").encode() for number in range(records)]
        sums = sum(zlib.crc32(b"%d %d %s" % (number, number, values[number])) for number in range(records))
        records_expected.append([partition, records, sum(range(records)), sums])
    return records_expected


def test_a_cluster_that_has_tierstate_from_an_archive_reads_what_was_written(site: Site) -> None:
    cluster, topic = tiered(site, "plain")
    job = site.submit(site.options(topic, cluster), archive=True)
    assert job.found() == expected()
    logs = [log.read_text(errors="replace") for log in site.spark.folder.rglob("stderr")]
    assert len(logs) == 2, "both workers had an executor"
    assert not any("compiled its kernels" in each for each in logs), "the archive's kernels were not found"


def test_the_secret_of_the_store_is_in_no_page_no_log_and_no_event(site: Site) -> None:
    cluster, topic = tiered(site, "secret")
    job = site.submit(site.options(topic, cluster))
    assert job.found() == expected()
    logs = [job.output, *(file for file in (site.folder / "events").rglob("*") if file.is_file())]
    logs += [file for file in site.spark.folder.rglob("std*") if file.is_file()] + list(site.spark.folder.glob("*.log"))
    lines = [f"{file}: {line}" for file in logs for line in file.read_text(errors="replace").splitlines()]
    assert [line for line in lines if SECRET in line] == []


def test_credentials_that_are_missing_on_executors_are_one_sentence(site: Site) -> None:
    cluster, topic = tiered(site, "refused")
    job = site.submit(site.options(topic, cluster), spark_executorEnv_AWS__SECRET__ACCESS__KEY="wrong")
    job.process.wait(PATIENCE_S)
    assert job.process.returncode != 0
    assert "AccessDenied" in job.output.read_text()


def test_a_killed_executor_costs_time_and_no_record(site: Site) -> None:
    cluster, topic = tiered(site, "killed")
    job = site.submit(site.options(topic, cluster), hold=True)
    job.begun(SLOTS)
    os.kill(min(site.spark.executors()), signal.SIGKILL)
    assert job.found() == expected()
    assert '"Event":"SparkListenerExecutorRemoved"' in site.events()


def test_a_killed_python_costs_time_and_no_record(site: Site) -> None:
    cluster, topic = tiered(site, "python")
    job = site.submit(site.options(topic, cluster), hold=True)
    job.begun(SLOTS)
    workers = site.spark.python_workers()
    assert workers
    for pid in workers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert job.found() == expected()
    assert "ExceptionFailure" in site.events()


def test_a_task_that_runs_twice_at_once_counts_once(site: Site) -> None:
    cluster, topic = tiered(site, "speculative")
    speculative: dict[str, Any] = {
        "spark_speculation": "true",
        "spark_speculation_interval": "100ms",
        "spark_speculation_multiplier": "1.1",
        "spark_speculation_quantile": "0.25",
        "spark_speculation_minTaskRuntime": "100ms",
    }
    job = site.submit(site.options(topic, cluster), hold=True, **speculative)
    job.begun(SLOTS)
    stopped = site.spark.python_workers_of(min(site.spark.executors()))
    assert stopped
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert job.found() == expected()
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert '"Speculative":true' in site.events()


def test_records_trimmed_while_a_job_runs_are_read_from_the_remote_tier(site: Site) -> None:
    cluster, topic = tiered(site, "trimmed")
    cluster.produce(topic, RECORDS, 2 * RECORDS, PARTITIONS)
    job = site.submit(site.options(topic, cluster), hold=True)
    job.begun(1)
    starts = cluster.copy_and_trim(topic, PARTITIONS)
    assert min(starts) > RECORDS
    assert job.found() == expected(2 * RECORDS)


def test_encrypted_segments_are_opened_on_executors(site: Site) -> None:
    keys = site.folder / "keys"
    cluster = TieredCluster(site.kafka, site.folder / "encrypted", "_tier-state-encrypted", site.store)
    cluster.run("keys", "new", "key1", "--bits", "2048", "--dir", str(keys))
    cluster.settings(f'[encryption]\nkeyring = "{keys / "keyring.toml"}"\n')
    topic, _ = cluster.tiered("t", RECORDS, PARTITIONS)
    job = site.submit(site.options(topic, cluster, tierstate__keyring=str(keys / "keyring.toml")))
    assert job.found() == expected()
    blind = site.submit(site.options(topic, cluster))
    blind.process.wait(PATIENCE_S)
    assert "segment is encrypted and no key ring was given" in blind.output.read_text()
