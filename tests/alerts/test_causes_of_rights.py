"""Withdrawn access fires alerts: an ACL, a password, an access key. So does a store that hangs or overwrites."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial

import boto3
import pytest
from confluent_kafka.admin import AdminClient
from moto.server import ThreadedMotoServer

from tests.alerts.prometheus import Prometheus, prometheus
from tests.alerts.watched import Watched
from tests.broker.beheading import alter
from tests.broker.guarded import guarded_sandbox, set_password
from tests.broker.roles import INIT, READER
from tests.scenarios.house import House, eventually, get
from tests.scenarios.test_acls import permit
from tests.servers.needs import needs
from tests.servers.store_programs import VERSITYGW
from tests.servers.store_server import StoreServer, versitygw
from tests.storage.faulty_proxy import FaultyProxy
from tierstate.broker.acls import AGENT, TO_BACK_UP
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.alerts, pytest.mark.kafka]
RECORDS = 2_500
SECRET = ("test", "testtest")
BUCKET = "alerts"


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus(tmp_path_factory.mktemp("scrapes")) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    """Yield a broker behind TLS, SASL and ACLs."""
    with guarded_sandbox(tmp_path_factory.mktemp("guarded")) as opened:
        yield opened


@pytest.fixture(scope="module")
def guarded(kafka: KafkaSandbox, scrapes: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Yield an agent that logs in by SCRAM and has the documented rights alone, with the topic ``orders``."""
    house = House(kafka, tmp_path_factory.mktemp("rights") / "house", "rights")
    for user, rights in (("operator", INIT), ("agent", AGENT), ("reader", READER)):
        permit(house, user, rights, f"{house.name}-orders")
    set_password(kafka, "agent", b"c")
    agent = house.as_user("agent", "c")
    agent.config.write_text(agent.config.read_text().replace('"PLAIN"', '"SCRAM-SHA-256"'))
    house.run("init")
    try:
        yield Watched(scrapes, agent)
    finally:
        house.close()


def fires(watched: Watched, alert: str) -> None:
    eventually(partial(watched.fires, alert), 120)


def test_an_acl_that_was_forgotten_keeps_a_topic_from_being_copied(guarded: Watched) -> None:
    house = guarded.house
    agent = guarded.agent()
    guarded.quiet("TierstateNeverCopied", "TierstateNotReady")
    topic = house.create("forgotten")
    house.append(topic, RECORDS)
    fires(guarded, "TierstateNeverCopied")
    fires(guarded, "TierstateNotReady")
    assert guarded.value("tierstate_rights_lacking") == 1
    permit(house, "agent", AGENT, topic)
    guarded.quiet("TierstateNeverCopied", "TierstateNotReady")
    guarded.retire(agent)


def test_rights_of_a_backup_that_lack_leave_it_incomplete(guarded: Watched) -> None:
    guarded.quiet("TierstateBackupIncomplete")
    agent = guarded.agent("--set", "backup.every=1s")
    fires(guarded, "TierstateBackupIncomplete")
    permit(guarded.house, "agent", TO_BACK_UP, f"{guarded.house.name}-orders")
    guarded.quiet("TierstateBackupIncomplete")
    guarded.retire(agent)


def test_a_password_that_was_changed_keeps_an_agent_out(guarded: Watched, kafka: KafkaSandbox) -> None:
    agent = guarded.agent()
    guarded.quiet("TierstateNotReady", "TierstateLoginRefused")
    set_password(kafka, "agent", b"another")
    kafka.stop(0)  # a connection that is open stays open
    kafka.start(0)
    fires(guarded, "TierstateNotReady")
    fires(guarded, "TierstateLoginRefused")
    failing = f'min_over_time(tierstate_discovery_failing{{cluster="{guarded.cluster}"}}[30s]) == 1'
    eventually(lambda: guarded.prometheus.ask(failing), 120)  # for longer than the broker was away
    guarded.retire(agent)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """Yield an S3 server with a bucket."""
    needs(VERSITYGW)
    with versitygw(tmp_path_factory.mktemp("s3"), *SECRET) as server:
        make_bucket(server.url)
        yield server


def make_bucket(endpoint: str) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=SECRET[0],
        aws_secret_access_key=SECRET[1],
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()


@pytest.fixture
def overwriting() -> Iterator[str]:
    """Run an S3 server that ignores If-None-Match, as older servers do, and checks no signature; yield the endpoint."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    make_bucket(f"http://{host}:{port}")
    proxy = FaultyProxy(f"http://{host}:{port}")
    proxy.fault = lambda method, path: "drop the condition"
    yield proxy.endpoint
    proxy.close()
    server.stop()


@pytest.fixture(scope="module")
def in_bucket(
    kafka: KafkaSandbox, bucket: StoreServer, scrapes: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    """Yield the house of a user with all rights, whose remote tier is in the bucket."""
    house = House(kafka, tmp_path_factory.mktemp("bucket") / "house", "bucket")
    (house.folder / "secret").write_text(SECRET[1])
    store = (
        f'url = "s3://{BUCKET}/tiers"\nendpoint = "{bucket.url}"\nregion = "us-east-1"\npath_style = true\n'
        f'access_key_id = "{SECRET[0]}"\nsecret_access_key = {{ file = "{house.folder / "secret"}" }}\n'
        'read_timeout = "2s"\nrequest_timeout = "4s"\nmax_attempts = 2\n'
    )
    house.config.write_text(house.config.read_text().replace(f'url = "{house.store.as_uri()}"\n', store))
    house.run("init")
    try:
        yield Watched(scrapes, house)
    finally:
        house.close()


@pytest.fixture(scope="module")
def topic(in_bucket: Watched) -> str:
    """Return the name of a topic that was copied and trimmed."""
    house = in_bucket.house
    name = house.create("orders")
    house.append(name, RECORDS)
    with house.agent():
        eventually(lambda: len(house.logs(name)) == 1)
    return name


def test_a_store_that_overwrites_is_noticed(in_bucket: Watched, overwriting: str) -> None:
    in_bucket.quiet("TierstateConditionalPutIgnored")
    agent = in_bucket.agent("--set", f"store.endpoint={overwriting}")
    fires(in_bucket, "TierstateConditionalPutIgnored")
    in_bucket.retire(agent)


def test_a_store_that_hangs_fails_reads_and_what_it_keeps_from_being_copied_is_lost_soon(
    in_bucket: Watched, bucket: StoreServer, topic: str
) -> None:
    agent = in_bucket.agent()
    gateway, url = in_bucket.gateway()
    in_bucket.quiet("TierstateNotReady", "TierstateReadsFail", "TierstateUncopiedDataIsLostSoon")
    bucket.signal(signal.SIGSTOP)
    in_bucket.house.append(topic, RECORDS, first=RECORDS)
    alter(AdminClient({**in_bucket.house.kafka.client_config, "log_level": 0}), topic, "retention.ms", "200000")
    assert get(f"{url}/v1/topics/{topic}/partitions/0/records?offset=0")[0] == 503
    fires(in_bucket, "TierstateNotReady")
    fires(in_bucket, "TierstateReadsFail")
    fires(in_bucket, "TierstateUncopiedDataIsLostSoon")
    assert in_bucket.value("tierstate_object_store_away") == 1
    bucket.signal(signal.SIGCONT)
    in_bucket.quiet("TierstateNotReady")
    alter(AdminClient({**in_bucket.house.kafka.client_config, "log_level": 0}), topic, "retention.ms", "604800000")
    for running in (agent, gateway):
        in_bucket.retire(running)


def test_an_access_key_that_was_revoked_stops_copying(in_bucket: Watched, bucket: StoreServer, topic: str) -> None:
    agent, house = in_bucket.agent(), in_bucket.house
    in_bucket.quiet("TierstateNotReady", "TierstatePrefixUnproven")
    bucket.kill()
    bucket.environment["ROOT_ACCESS_KEY"] = "another"
    bucket.start()
    house.append(topic, RECORDS, first=RECORDS)
    fires(in_bucket, "TierstateNotReady")
    fires(in_bucket, "TierstatePrefixUnproven")
    description = house.run("describe", f"{topic}:0").stdout
    assert "code=XAdminUserNotFound" in description
    in_bucket.retire(agent)
