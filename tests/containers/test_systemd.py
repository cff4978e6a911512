"""The shipped units run under a real systemd: a day's life of an agent, a gateway, a proxy and a follower of tables."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from moto.server import ThreadedMotoServer

from tests.containers import engine as engines
from tests.containers import machine as machines
from tests.containers.machine import Machine
from tests.scenarios.house import eventually, get
from tests.wheels import ROOT
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.sandbox.ports import PortLease

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]
NAMES = ("agent", "gateway", "proxy", "table")
EXPOSURE = "30"
"""The most that `systemd-analyze security` may find, in tenths: 3.0 of 10."""
RECORDS = 3000
TOPIC = "orders"
BUCKET, REGION = "tierstate", "us-east-1"
KEYS = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret"}
MANIFEST = ".rsm-manifest"
AGENT_EDIT = """\
User=kafka
Group=kafka
ReadWritePaths=/srv/kafka
WatchdogSec=20s
TimeoutAbortSec=5s
"""


@dataclass
class Site:
    """A machine with our units, next to a broker whose log folders it sees. ``management``: addresses by name."""

    machine: Machine
    kafka: KafkaSandbox
    store: Any
    management: dict[str, str]
    gateway: str
    proxy: str

    def boot(self) -> None:
        self.machine.boot(*(f"tierstate-{name}.service" for name in NAMES))

    def ready(self, name: str) -> bool:
        try:
            return get(f"http://{self.management[name]}/readyz")[0] == 200
        except OSError:
            return False  # it does not listen yet

    def produce(self, first: int) -> None:
        """Append records that roll some segments."""
        failures = list[object]()

        def delivered(error: object, message: object) -> None:
            if error is not None:
                failures.append(error)

        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "batch.num.messages": 50})
        for number in range(first, first + RECORDS):
            producer.produce(TOPIC, key=b"%d" % number, value=b"x" * 400, on_delivery=delivered)
        assert producer.flush(60) == 0
        assert failures == []

    def copied(self) -> int:
        listed = self.store.list_objects_v2(Bucket=BUCKET).get("Contents", ())
        return sum(each["Key"].endswith(MANIFEST) for each in listed)

    def pid(self, name: str) -> int:
        """Return the service's process, as this machine counts processes."""
        inside = self.machine.shows(f"tierstate-{name}", "MainPID")
        for status in Path("/proc").glob("[0-9]*/status"):
            text = status.read_text()
            [pids] = [line.split()[1:] for line in text.splitlines() if line.startswith("NSpid:")]
            if len(pids) > 1 and pids[-1] == inside and "Name:\ttierstate" in text:
                return int(pids[0])
        raise AssertionError(f"no process {inside} of tierstate-{name}")

    def soon(self, look: Callable[[], object]) -> None:
        """Wait until ``look`` is true. A failure shows the end of every journal."""
        try:
            eventually(look, 240)
        except AssertionError as error:
            ends = [f"{name}:\n{self.machine.journal(f'tierstate-{name}')[-3000:]}" for name in NAMES]
            raise AssertionError("\n".join([str(error), *ends])) from None

    def restarts(self, name: str) -> int:
        return int(self.machine.shows(f"tierstate-{name}", "NRestarts"))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """The machine is off. Its broker runs as another user than the agent, so the agent gets the folders given."""
    if reason := machines.missing():
        engines.skip_or_fail(reason)
    lease, moto = PortLease(), ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    moto.start()
    endpoint = "http://{}:{}".format(*moto.get_host_and_port())
    store = boto3.client(
        "s3", endpoint_url=endpoint, region_name=REGION, aws_access_key_id="an-id", aws_secret_access_key="a-secret"
    )
    store.create_bucket(Bucket=BUCKET)
    management = {name: f"127.0.0.1:{lease.take()}" for name in NAMES}
    gateway, proxy = f"127.0.0.1:{lease.take()}", f"127.0.0.1:{lease.take()}"
    with KafkaSandbox() as kafka, machines.machine(kafka=kafka.folder) as machine:
        admin = AdminClient(kafka.client_config)
        rolled = {"internal.segment.bytes": "100000", "file.delete.delay.ms": "1000"}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=rolled)])[TOPIC].result(60)
        site = Site(machine, kafka, store, management, gateway, proxy)
        _install(site, endpoint)
        yield site
    moto.stop()
    lease.release()


def _install(site: Site, endpoint: str) -> None:
    for user in ("kafka", "tierstate"):
        subprocess.run(["chroot", str(site.machine.root), "useradd", "--system", user], check=True)
    subprocess.run(["chmod", "-R", "a+rwX", str(site.kafka.folder)], check=True)
    logs = site.kafka.brokers[0].log_dir.relative_to(site.kafka.folder)
    site.machine.write(
        "/etc/tierstate/tierstate.toml",
        f'state_dir = "/var/lib/tierstate"\n[kafka]\n"bootstrap.servers" = "{site.kafka.bootstrap}"\n'
        f'[store]\nurl = "s3://{BUCKET}/tier"\nendpoint = "{endpoint}"\nregion = "{REGION}"\n'
        "[tier_state]\npartitions = 2\nreplication_factor = 1\n"
        f'[tiering]\ninclude = ["{TOPIC}"]\n[agent]\nlog_dirs = ["/srv/kafka/{logs}"]\n'
        f'[gateway]\nlisten = "{site.gateway}"\n[proxy]\nlisten = "{site.proxy}"\n',
    )
    files = min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    for name in NAMES:
        unit = f"/etc/systemd/system/tierstate-{name}.service"
        own = AGENT_EDIT if name == "agent" else ""
        address = f"Environment=TIERSTATE_MANAGEMENT__LISTEN={site.management[name]} LD_LIBRARY_PATH=/opt/python/lib\n"
        site.machine.write(unit, (ROOT / "deploy" / f"tierstate-{name}.service").read_text())
        secrets = "".join(f"{key}={value}\n" for key, value in KEYS.items())
        site.machine.write(f"/etc/tierstate/{name}.env", secrets, mode=0o600)
        site.machine.write(f"{unit}.d/override.conf", f"[Service]\n{own}{address}LimitNOFILE={files}\n")


def test_systemd_understands_every_line_and_calls_no_unit_exposed(site: Site) -> None:
    """Before the machine is on, for a look at files needs no systemd that runs."""
    for name in NAMES:
        unit = f"/etc/systemd/system/tierstate-{name}.service"
        for check in (["verify", "--man=no", unit], ["security", "--offline=true", f"--threshold={EXPOSURE}", unit]):
            done = subprocess.run(
                ["chroot", str(site.machine.root), "systemd-analyze", *check], capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"tierstate-{name}.service:" not in done.stderr, done.stderr


def test_a_day_of_the_four_services(site: Site) -> None:
    machine = site.machine
    site.boot()
    environment = [f"{key}={value}" for key, value in KEYS.items()]
    environment += ["TIERSTATE_STATE_DIR=/tmp/init", "TIERSTATE_CONFIG=/etc/tierstate/tierstate.toml"]
    machine.run("env", *environment, "/opt/tierstate/bin/tierstate", "init")
    site.soon(lambda: all(site.ready(name) for name in NAMES))
    site.produce(0)
    site.soon(lambda: site.copied() > 5)

    # a process that dies is started again, and goes on where it was
    before, restarts = site.copied(), site.restarts("agent")
    os.kill(site.pid("agent"), signal.SIGKILL)
    site.soon(lambda: site.restarts("agent") > restarts and site.ready("agent"))
    site.produce(RECORDS)
    site.soon(lambda: site.copied() > before + 5)

    # one that hangs is ended by the watchdog
    restarts = site.restarts("agent")
    os.kill(site.pid("agent"), signal.SIGSTOP)
    site.soon(lambda: site.restarts("agent") > restarts and site.ready("agent"))
    assert "watchdog" in machine.run("journalctl", "--no-pager", "--unit=tierstate-agent").lower()

    # gateway and proxy read what was copied and what was not
    page = get(f"http://{site.gateway}/v1/topics/{TOPIC}/partitions/0/records?offset=0&max_records=1")[1]
    assert json.loads(page.decode().splitlines()[0])["offset"] == 0
    assert read_all(site.proxy) == list(range(2 * RECORDS))

    # the machine is switched off and on again: everything ends in order, and comes back by itself
    before = site.copied()
    for name in NAMES:
        machine.run("systemctl", "stop", f"tierstate-{name}")
        assert machine.shows(f"tierstate-{name}", "Result") == "success", machine.journal(f"tierstate-{name}")
    machine.power_off()
    site.produce(2 * RECORDS)
    site.boot()
    site.soon(lambda: all(site.ready(name) for name in NAMES))
    site.soon(lambda: site.copied() > before + 5)
    assert read_all(site.proxy) == list(range(3 * RECORDS))


def read_all(address: str) -> list[int]:
    """Return the numbers of all records, as a client of this address reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "all",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    keys = list[int]()
    try:
        consumer.subscribe([TOPIC])
        while True:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is not None:
                return keys
            keys.append(int(message.key()))
    finally:
        consumer.close()
