"""Under exactly the documented ACLs everything works: every command, the gateway, `read_records` and Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, AdminClient, NewTopic, ResourceType
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.broker.guarded import PASSWORDS, PLAIN, allow, binding, denied
from tests.broker.roles import INIT, READER, table
from tests.docs.blocks import executed
from tests.docs.page_shell import PageShell
from tests.sampled import sampled
from tests.scenarios.house import Done, House, eventually, get, run, side_by_side
from tierstate.broker.acls import AGENT, TO_BACK_UP, Resource, Right
from tierstate.consumer.connect import read_records
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.spark.batch import BatchReader
from tierstate.spark.options import parse_options
from tierstate.spark.sessions import local_session
from tierstate.state.errors import AccessDenied

pytestmark = pytest.mark.kafka

RECORDS = 2_000
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def permit(house: House, user: str, rights: tuple[Right, ...], topic: str) -> None:
    bound = [(*right.resource.pattern(house.tier_topic, topic), right.operation) for right in rights]
    allow(house.kafka, [binding(user, kind, name, what) for kind, name, what in bound])


@dataclass
class Guarded:
    """A topic that was copied and trimmed by an agent with the documented rights only."""

    house: House
    topic: str

    def user(self, name: str) -> House:
        return self.house.as_user(name, PASSWORDS[name])


@pytest.fixture(scope="module")
def guarded(tls_kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    house = House(tls_kafka, tmp_path_factory.mktemp("acls") / "house", "acls")
    try:
        topic = f"{house.name}-orders"
        permit(house, "operator", INIT, topic)
        permit(house, "agent", AGENT, topic)
        permit(house, "reader", READER, topic)
        made = Guarded(house, house.create("orders"))
        eventually(lambda: run("init", "--config", str(made.user("operator").config)).returncode == 0)
        house.append(made.topic, RECORDS)
        with made.user("agent").agent():
            eventually(lambda: len(house.logs(made.topic)) == 1)
        yield made
    finally:
        house.close()


READS = {
    "topics": [],
    "describe": ["T"],
    "segments": ["T:0"],
    "facts": ["T"],
    "consume": ["T:0", "--from", "earliest", "-n", "5"],
    "digest": ["T"],
    "verify": ["T", "--level", "3"],
    "replay": [],
    "leases": ["T"],
    "sweep": ["T"],
    "delete-records": ["T:0", "--before", "10"],
}
ORDERS = {"pause": ["T:0"], "resume": ["T:0"]}


def call(guarded: Guarded, user: str, command: str) -> Done:
    parsed = {**READS, **ORDERS}[command]
    arguments = [each.replace("T", guarded.topic) if each[0] == "T" else each for each in parsed]
    return run(command, *arguments, "--config", str(guarded.user(user).config))


@pytest.mark.parametrize("command", READS)
def test_a_reader_reads_by_every_command(command: str, guarded: Guarded) -> None:
    done = call(guarded, "reader", command)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("right", sampled(READER, 4), ids=lambda right: f"{right.resource.name}-{right.operation.name}")
def test_a_reader_that_lacks_a_right_is_refused_by_name_and_nothing_hangs(right: Right, guarded: Guarded) -> None:
    kind, name = right.resource.pattern(guarded.house.tier_topic, guarded.topic)
    deny = binding("reader", kind, name, right.operation, AclPermissionType.DENY)
    with denied(guarded.house.kafka, deny):
        eventually(lambda: any(call(guarded, "reader", each).returncode for each in ("digest", "describe")))
        digests = side_by_side([partial(call, guarded, "reader", each) for each in ("topics", "describe", "digest")])
    assert {each.returncode for each in digests} <= {0, 5}, [each.stderr for each in digests]
    refused = [done.stderr for done in digests if done.returncode == 5]
    assert refused
    assert all(name in sentence for sentence in refused), refused
    eventually(lambda: not any(call(guarded, "reader", each).returncode for each in ("digest", "describe")))


@pytest.mark.parametrize("right", AGENT, ids=lambda right: f"{right.resource.name}-{right.operation.name}")
def test_check_names_the_right_that_an_agent_lacks_and_the_command_that_adds_it(right: Right, guarded: Guarded) -> None:
    agent = guarded.user("agent")
    kind, name = right.resource.pattern(guarded.house.tier_topic, guarded.topic)

    def rights(code: int) -> str | None:
        done = run("check", "--json", "--config", str(agent.config))
        (row,) = [each for each in json.loads(done.stdout) if each["check"] == "rights"]
        return row["detail"] if done.returncode == code else None

    text = eventually(lambda: rights(0))
    assert text.startswith("all that an agent needs")
    with denied(guarded.house.kafka, binding("agent", kind, name, right.operation, AclPermissionType.DENY)):
        text = eventually(lambda: rights(1))
    assert f"{right.operation.name} on " in text
    flag = {ResourceType.TOPIC: f"--topic '{name}'", ResourceType.GROUP: "--group '*'"}.get(kind, "--cluster")
    assert (
        f"--command-config ADMIN.properties --add --allow-principal User:agent --operation {right.typed} {flag}" in text
    )


def readiness_with(told: str, management: str) -> str | None:
    answer = get(f"http://{management}/readyz")[1].decode()
    return answer if told in answer else None


def test_a_topic_whose_acls_were_forgotten_is_seen_everywhere_with_the_command_that_adds_them(guarded: Guarded) -> None:
    """The agent sees one but may not read its settings, and Kafka hides the other from it."""
    house, operator = guarded.house, guarded.user("operator")
    names = {each: f"{house.name}-{each}" for each in ("forgotten", "hidden")}
    lacks = {"forgotten": "DESCRIBE_CONFIGS", "hidden": "DESCRIBE"}
    deny = binding("agent", ResourceType.TOPIC, names["hidden"], AclOperation.DESCRIBE, AclPermissionType.DENY)
    for each, name in names.items():
        permit(house, "operator", INIT, name)
        assert house.create(each) == name
    before = {each["topic"]: each["trouble"] for each in operator.json("status")}
    assert before[names["forgotten"]] == before[names["hidden"]] == ["never copied"], "no agent runs"
    (partition,) = operator.json("describe", f"{names['forgotten']}:0")
    assert partition["agent"].startswith("none has led this partition yet, and tiering.include chooses it")
    with denied(house.kafka, deny):  # and no agent answers
        alone = partial(guarded.user("agent").run, "status", "--set", f"tiering.include={names['hidden']}")
        sentence = f"{names['hidden']}: does not exist, or the broker hides it: DESCRIBE on {names['hidden']}: "
        note = eventually(lambda: text if sentence in (text := alone().stderr) else None)
        assert f"--add --allow-principal User:agent --operation Describe --topic '{names['hidden']}'" in note
    with denied(house.kafka, deny), guarded.user("agent").agent() as agent:
        management = agent.says("agent ready")["management"]
        for each, name in names.items():
            house.append(name, RECORDS)
            sentence = f"{lacks[each]} on {name}: "
            added_by = (
                f"--allow-principal User:agent --operation {lacks[each].title().replace('_', '')} --topic '{name}'"
            )
            assert added_by in eventually(partial(readiness_with, sentence, management))
            (partition,) = operator.json("describe", f"{name}:0")
            assert [right for right in partition["agent"]["rights_lacking"] if sentence in right and added_by in right]
            (row,) = [row for row in operator.json("status") if row["topic"] == name]
            assert row["trouble"] == ["agent fails", "never copied", "right lacks"]
            assert [right for right in row["rights_lacking"] if sentence in right and added_by in right]
            assert f"{name}: right lacks: {sentence}" in operator.run("status").stderr
            ours = guarded.user("agent")
            refused = ours.run("describe", f"{name}:0", code=5).stderr
            assert f"lacking: {sentence}" in refused
            assert f"--add {added_by}" in refused
            (row,) = [row for row in ours.json("status") if row["topic"] == name]
            assert (row["trouble"], row["partitions"]) == (["agent fails", "never copied", "right lacks"], 1)
            metrics = agent.metrics()
            assert f'tierstate_never_copied{{partition="0",topic="{name}"}} 1.0' in metrics
            assert f'tierstate_rights_lacking{{on="{name}",operation="{lacks[each]}"}} 1.0' in metrics
        for name in names.values():
            permit(house, "agent", AGENT, name)
        eventually(lambda: house.manifests(names["forgotten"]))
    admin = AdminClient({**house.kafka.client_config, "log_level": 0})
    for future in admin.delete_topics(list(names.values())).values():
        future.result(30)


def test_an_agent_without_the_rights_of_a_backup_copies_and_reports_what_the_backup_lacks(guarded: Guarded) -> None:
    house, operator, other = guarded.house, guarded.user("operator"), "of-others"
    admin = AdminClient({**house.kafka.client_config, "log_level": 0})
    admin.create_topics([NewTopic(other, 1, 1)])[other].result(30)
    before = len(house.manifests(guarded.topic))
    with guarded.user("agent").agent("--set", "backup.every=1s") as agent:
        eventually(lambda: "tierstate_backup_problems 2.0" in agent.metrics())
        (row,) = [row for row in operator.json("status") if row["backup_problems"]]
        quotas, settings = sorted(row["backup_problems"])
        assert f"settings of 1 topic, such as {other}" in settings
        assert "needs=DESCRIBE_CONFIGS" in settings
        assert "needs=DESCRIBE_CONFIGS on the cluster" in quotas
        assert f"the backup of the cluster: {quotas}" in operator.run("status").stderr
        house.append(guarded.topic, RECORDS, first=RECORDS)
        eventually(lambda: len(house.manifests(guarded.topic)) > before)
        permit(house, "agent", TO_BACK_UP, guarded.topic)
        eventually(lambda: "tierstate_backup_problems 0.0" in agent.metrics())
    admin.delete_topics([other])[other].result(30)


def test_an_order_without_write_is_refused_and_with_it_given(guarded: Guarded) -> None:
    for command in ORDERS:
        done = call(guarded, "reader", command)
        assert done.returncode == 5, done.stderr
        assert f"topic={guarded.house.tier_topic} needs=WRITE" in done.stderr
        assert call(guarded, "operator", command).returncode == 0


def test_an_agent_of_every_topic_needs_no_right_to_tier_what_is_never_tiered(guarded: Guarded) -> None:
    (rights,) = [
        each for each in guarded.user("agent").json("check", "--set", "tiering.include=.*") if each["check"] == "rights"
    ]
    assert rights["detail"] == "all that an agent needs, on 1 topic"


def secured(guarded: Guarded) -> dict[str, str]:
    return guarded.house.kafka.client_config | {"sasl.username": "reader", "sasl.password": PASSWORDS["reader"]}


def records_read(guarded: Guarded) -> int:
    """Read by Python. The agent of other tests may have copied more since: only the first records are asked for."""
    store, tier_topic = guarded.house.store.as_uri(), guarded.house.tier_topic
    table = read_records(
        secured(guarded), store, guarded.topic, 0, 0, RECORDS, settings={"tier_state.topic": tier_topic}
    )
    return sum(batch.num_rows for batch in table)


def test_read_records_reads_both_tiers(guarded: Guarded) -> None:
    assert records_read(guarded) == RECORDS


def page(url: str, guarded: Guarded) -> tuple[int, bytes]:
    """Read the first record and the last, which the broker has, by a gateway."""
    records = f"{url}/v1/topics/{guarded.topic}/partitions/0/records"
    first = get(f"{records}?offset=0&max_records=1", "application/x-ndjson")
    return first if first[0] != 200 else get(f"{records}?offset={RECORDS - 1}&max_records=1", "application/x-ndjson")


def test_the_gateway_serves_both_tiers(guarded: Guarded) -> None:
    running, url = guarded.user("reader").gateway()
    status, body = page(url, guarded)
    running.stop()
    assert status == 200
    assert len(body.splitlines()) == 1


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session("tierstate-acls", 2, memory="512m") as session:
        yield session


def spark_options(guarded: Guarded) -> dict[str, str]:
    options = {f"kafka.{name}": value for name, value in secured(guarded).items()}
    options |= {"tierstate.store": guarded.house.store.as_uri(), "subscribe": guarded.topic}
    options |= {"tierstate.tier_state_topic": guarded.house.tier_topic}
    return options | {"endingOffsets": json.dumps({guarded.topic: {"0": RECORDS}})}


def rows_counted(spark: SparkSession, guarded: Guarded) -> int:
    return spark.read.format("tierstate").options(**spark_options(guarded)).load().count()


@pytest.mark.slow
@pytest.mark.spark
def test_spark_reads_both_tiers(spark: SparkSession, guarded: Guarded) -> None:
    assert rows_counted(spark, guarded) == RECORDS


def test_a_query_that_may_take_no_lease_warns_and_goes_on(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    assert BatchReader(parse_options(spark_options(guarded))).partitions()
    assert "no lease keeps what this query reads" in caplog.text


def is_served(ask: Callable[[], str]) -> bool:
    return ask() == ""


def refusal(ask: Callable[[], object], kind: type[Exception]) -> str:
    """Return the message of the refusal; empty if there was none."""
    try:
        ask()
    except kind as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("right", READER, ids=lambda right: f"{right.resource.name}-{right.operation.name}")
def test_a_reader_without_a_right_is_refused_by_name_or_does_not_need_it(
    right: Right, guarded: Guarded, spark: SparkSession
) -> None:
    """Every command, a gateway that ran before, `read_records` and Spark; all of them go on when the right is back."""
    kind, name = right.resource.pattern(guarded.house.tier_topic, guarded.topic)
    deny = binding("reader", kind, name, right.operation, AclPermissionType.DENY)
    running, url = guarded.user("reader").gateway()
    reads: dict[str, Callable[[], str]] = {
        "gateway": lambda: "" if page(url, guarded)[0] == 200 else page(url, guarded)[1].decode(),
        "read_records": lambda: refusal(lambda: records_read(guarded), AccessDenied),
        "Spark": lambda: refusal(lambda: rows_counted(spark, guarded), PySparkException),
    }
    try:
        assert {face: ask() for face, ask in reads.items()} == dict.fromkeys(reads, "")
        with denied(guarded.house.kafka, deny):
            eventually(lambda: any(call(guarded, "reader", each).returncode for each in ("digest", "describe")))
            commands = {command: call(guarded, "reader", command) for command in READS}
            outputs = {command: done.stderr if done.returncode else "" for command, done in commands.items()}
            outputs |= {face: ask() for face, ask in reads.items()}
            assert {done.returncode for done in commands.values()} <= {0, 5}, outputs
        refused = {who: words for who, words in outputs.items() if words}
        assert refused
        assert all(name in words for words in refused.values()), refused
        print(f"{right.operation.name} on {right.resource}: refused {', '.join(refused)}")
        for ask in reads.values():
            eventually(partial(is_served, ask))
    finally:
        running.stop()


def test_the_table_of_the_documentation_is_this_one() -> None:
    assert table() in OPERATIONS.read_text()


def test_kafkas_own_tool_takes_every_command_of_the_page_for_production(
    tls_kafka: KafkaSandbox, tmp_path: Path
) -> None:
    """The tool knows ``DescribeConfigs``, and not the name that the client library has for it."""
    shell = PageShell(
        tmp_path / "shell", {"HOST:PORT": tls_kafka.bootstrap, "orders": "acls-page", "User:": "User:page-"}
    )
    (shell.folder / "admin.properties").write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        f'sasl.jaas.config={PLAIN} username="admin" password="{PASSWORDS["admin"]}";\n'
        f"ssl.truststore.location={tls_kafka.client_config['ssl.ca.location']}\n"
    )
    for block in executed("docs/production.md", __file__):
        for command in block.commands():
            done = shell.type(command)
            assert done.returncode == 0, done
    assert "resourceType=USER, name=*" in done.stdout
    assert "operation=CREATE_TOKENS" in done.stdout
    done = shell.type("${ACLS% --add} --list --topic orders")
    operations = {right.operation.name for right in (*AGENT, *READER) if right.resource is Resource.TOPICS}
    assert set(re.findall(r"operation=(\w+)", done.stdout)) == operations


@pytest.mark.slow  # a missing right is noticed within half a minute
@pytest.mark.parametrize("operation", [AclOperation.WRITE, AclOperation.READ], ids=["WRITE", "READ"])
def test_an_agent_whose_right_is_taken_away_says_which_and_goes_on_when_it_is_back(
    operation: AclOperation, guarded: Guarded
) -> None:
    house, copied = guarded.house, len(guarded.house.manifests(guarded.topic))
    deny = binding("agent", ResourceType.TOPIC, house.tier_topic, operation, AclPermissionType.DENY)
    lacks = f"{operation.name} on {house.tier_topic}: "
    with guarded.user("agent").agent() as agent:
        management = agent.says("agent ready")["management"]
        house.append(guarded.topic, RECORDS, first=RECORDS)
        eventually(lambda: len(house.logs(guarded.topic)) == 1)
        before = len(house.manifests(guarded.topic))
        assert before > copied
        with denied(house.kafka, deny):
            house.append(guarded.topic, RECORDS, first=2 * RECORDS)
            eventually(lambda: f"a right lacks: {lacks}".encode() in get(f"http://{management}/readyz")[1], 90)
            (partition,) = guarded.user("operator").json("describe", f"{guarded.topic}:0")
            assert partition["agent"]["rights_lacking"][0].startswith(lacks)
            assert len(house.manifests(guarded.topic)) == before
        eventually(lambda: len(house.manifests(guarded.topic)) > before, 30)
