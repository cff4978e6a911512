"""`docker compose up`: three ways to read agree before and after each container was killed, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import engine_guard
from tests.containers.cluster import RECORDS, TOPIC, Cluster, orders, read_of, running, until
from tests.containers.conftest import IMAGE
from tests.containers.engine import Engine, missing, skip_or_fail
from tests.containers.images import SPARK_OURS
from tests.wheels import ROOT

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]
SERVICES = ("kafka", "store", "agent", "gateway", "proxy")
EXPECTED = read_of(orders())


@pytest.fixture(scope="module")
def cluster(built: Engine) -> Iterator[Cluster]:
    with running(built, IMAGE) as opened:
        for service in SERVICES:
            until(lambda: opened.is_well(service), f"{service} is well")  # noqa: B023  it is called here
        opened.produce()
        until(lambda: opened.local_start() > 0, "the broker's log is trimmed")
        yield opened


def check_reads(cluster: Cluster) -> None:
    assert cluster.by_proxy() == EXPECTED
    read, tiers = cluster.by_gateway()
    assert read == EXPECTED
    assert tiers == {"local", "remote"}
    assert cluster.by_command() == EXPECTED


def test_proxy_gateway_and_command_read_the_same_records_of_both_tiers(cluster: Cluster) -> None:
    assert 0 < cluster.local_start() < RECORDS
    check_reads(cluster)


@pytest.mark.parametrize("service", ["agent", "gateway", "proxy"])
def test_our_containers_cannot_write_to_their_root(cluster: Cluster, service: str) -> None:
    assert cluster.container(service)["HostConfig"]["ReadonlyRootfs"] is True
    refused = cluster.run("exec", "-T", service, "sh", "-c", "touch /opt/x /etc/x ~/x 2>&1 || true")
    assert refused.count("Read-only file system") == 3


@pytest.mark.parametrize("service", SERVICES)
def test_a_killed_container_comes_back_and_every_read_is_the_same(cluster: Cluster, service: str) -> None:
    cluster.kill(service)
    for name in SERVICES:
        until(lambda: cluster.is_well(name), f"{name} is well after {service} was killed")  # noqa: B023  it is called here
    until(lambda: cluster.by_proxy() == EXPECTED, f"the proxy reads after {service} was killed")
    until(lambda: cluster.by_gateway()[0] == EXPECTED, f"the gateway reads after {service} was killed")
    check_reads(cluster)


def test_spark_in_a_container_counts_the_records_of_both_tiers(cluster: Cluster, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "import tierstate.spark\n"
        "spark = tierstate.spark.session(master='local[2]')\n"
        "options = {'kafka.bootstrap.servers': 'kafka:19092', 'tierstate.store': 's3://tierstate/tiers',\n"
        "           'tierstate.store.endpoint': 'http://store:7070', 'tierstate.store.region': 'us-east-1',\n"
        f"           'subscribe': '{TOPIC}'}}\n"
        "rows = spark.read.format('tierstate').options(**options).load()\n"
        "print('counted', rows.count(), rows.selectExpr('count(distinct offset)').first()[0])\n"
    )
    job.chmod(0o644)
    (network,) = cluster.container("gateway")["NetworkSettings"]["Networks"]
    keys = ("AWS_ACCESS_KEY_ID=tierstate", "AWS_SECRET_ACCESS_KEY=only-for-trying")
    options = ["--rm", "--network", network, *(part for key in keys for part in ("--env", key))]
    command = ["/opt/spark/bin/spark-submit", "--master", "local[2]", "local:///job.py"]
    printed = cluster.engine.docker("run", *options, "--volume", f"{job}:/job.py:ro", SPARK_OURS, *command)
    assert f"counted {RECORDS} {RECORDS}" in printed


# --- what is left ----------------------------------------------------------------------------------------------------

HOLDER = """
import sys
from tests.containers.engine import started
with started() as engine:
    sleep = "tar -ch /bin/sleep $(ldd /bin/sleep | grep -o '/[^ ]*') | docker import - idle"
    engine.run("bash", "-c", sleep)
    engine.docker("network", "create", "--subnet", "10.213.77.0/24", "left")
    engine.docker("run", "--detach", "--network", "left", "--publish", "127.0.0.1::7070", "idle", "/bin/sleep", "600")
    assert engine.docker("ps", "--quiet").strip()
    print(engine.folder, engine.docker("network", "inspect", "left", "--format", "{{.Id}}").strip(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_interrupted_leaves_nothing(how: signal.Signals) -> None:
    reason = missing()
    if reason:
        skip_or_fail(reason)
    before = iptables()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert holder.stdout is not None
    folder, network = holder.stdout.readline().split()
    bridge = Path(f"/sys/class/net/br-{network[:12]}")
    assert bridge.exists()
    assert list(engine_guard.processes(Path(folder)))
    holder.send_signal(how)
    holder.communicate()
    until(lambda: not Path(folder).exists(), "the engine's folder is removed")
    assert not list(engine_guard.processes(Path(folder)))
    assert not engine_guard.mounts(Path(folder))
    assert not engine_guard.groups(Path(folder))
    assert not bridge.exists()
    assert [line for line in iptables() if line not in before and network[:12] in line] == []


def iptables() -> list[str]:
    return subprocess.run(["iptables-save"], capture_output=True, text=True).stdout.splitlines()
