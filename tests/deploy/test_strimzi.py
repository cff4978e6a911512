"""The examples for Strimzi: the users have exactly the rights of the one list, and all files name the same things."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import yaml

from tests.broker.roles import INIT, ONLY_TO_BACK_UP, READER
from tests.deploy.chart import CHART, ROOT
from tierstate.broker.acls import Resource, Right, rights_of_agent

FOLDER = ROOT / "deploy" / "strimzi"
TEXT = (FOLDER / "kafka-user.yaml").read_text()
ONLY_TO_TRIM = "# Only to trim."
TOPIC, TIER_STATE = "orders", "_tier-state"
KINDS = {"topic": Resource.TOPICS, "group": Resource.EVERY_GROUP, "cluster": Resource.CLUSTER}
Acl = tuple[str, str, str]


def users(text: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in yaml.safe_load_all(text)}


def acls_of(user: dict[str, Any]) -> Counter[Acl]:
    """Return (kind, name, operation) of all entries. A field that is not known here fails the test."""
    assert user["spec"]["authorization"].keys() == {"type", "acls"}
    assert user["spec"]["authorization"]["type"] == "simple"
    found = Counter[Acl]()
    for entry in user["spec"]["authorization"]["acls"]:
        assert entry.keys() == {"resource", "operations"}
        resource = dict(entry["resource"])
        kind = resource.pop("type")
        name = "kafka-cluster" if kind == "cluster" else resource.pop("name")
        assert resource == ({} if kind == "cluster" else {"patternType": "literal"})
        found.update((kind, name, operation) for operation in entry["operations"])
    return found


def acls_for(rights: tuple[Right, ...]) -> Counter[Acl]:
    kinds = {resource.pattern(TIER_STATE, TOPIC)[0]: name for name, resource in KINDS.items()}
    found = Counter[Acl]()
    for right in rights:
        kind, name = right.resource.pattern(TIER_STATE, TOPIC)
        found[kinds[kind], name, right.typed] += 1
    return found


@pytest.mark.parametrize(
    ("name", "rights"),
    [
        ("tierstate-agent", rights_of_agent(trims=True, fetches=True) + ONLY_TO_BACK_UP),
        ("tierstate-reader", READER),
        ("tierstate-operator", INIT),
    ],
)
def test_a_user_has_exactly_the_rights_of_the_one_list(name: str, rights: tuple[Right, ...]) -> None:
    assert acls_of(users(TEXT)[name]) == acls_for(rights)


def test_an_archive_needs_exactly_the_entries_before_the_comment() -> None:
    before, comment, _ = TEXT.partition("---")[0].partition(ONLY_TO_TRIM)
    assert comment
    (agent,) = users(before.rstrip(" #")).values()
    assert acls_of(agent) == acls_for(rights_of_agent(trims=False, fetches=True) + ONLY_TO_BACK_UP)


def test_an_entry_too_many_is_noticed() -> None:
    changed = users(TEXT.replace("operations: [Delete]", "operations: [Delete, Alter]"))["tierstate-agent"]
    assert acls_of(changed) != acls_for(rights_of_agent(trims=True, fetches=True) + ONLY_TO_BACK_UP)


def test_users_and_listener_are_of_one_cluster_and_log_in_by_one_mechanism() -> None:
    cluster = yaml.safe_load((FOLDER / "listener.yaml").read_text())
    (listener,) = cluster["spec"]["kafka"]["listeners"]
    assert (listener["type"], listener["tls"], listener["port"]) == ("internal", True, 9093)
    for user in users(TEXT).values():
        assert (user["apiVersion"], user["kind"]) == (cluster["apiVersion"], "KafkaUser")
        assert user["metadata"]["labels"] == {"strimzi.io/cluster": cluster["metadata"]["name"]}
        assert user["spec"]["authentication"] == listener["authentication"]
        assert user["spec"]["authorization"]["type"] == cluster["spec"]["kafka"]["authorization"]["type"]


def test_the_chart_logs_in_as_these_users() -> None:
    values = yaml.safe_load((CHART / "ci" / "strimzi.yaml").read_text())
    cluster = yaml.safe_load((FOLDER / "listener.yaml").read_text())["metadata"]["name"]
    assert values["secrets"]["tls"] == f"{cluster}-cluster-ca-cert"
    names = set()
    for part in ("init", "agent", "gateway", "proxy"):
        variables = {each["name"]: each for each in values[part]["env"]}
        name = variables["KAFKA_USERNAME"]["value"]
        assert variables["KAFKA_PASSWORD"]["valueFrom"]["secretKeyRef"] == {"name": name, "key": "password"}
        names.add(name)
    assert names == users(TEXT).keys()


def test_the_page_makes_every_secret_that_strimzi_does_not_make() -> None:
    values = yaml.safe_load((CHART / "ci" / "strimzi.yaml").read_text())
    named = {
        each["secretRef"]["name"] for part in ("init", "agent", "gateway", "proxy") for each in values[part]["envFrom"]
    }
    named |= {values["gateway"]["tokens"]["secret"], *(values[part]["tls"]["secret"] for part in ("gateway", "proxy"))}
    page = (ROOT / "docs" / "strimzi.md").read_text()
    assert set(re.findall(r"^kubectl create secret \w+ (\S+)", page, re.MULTILINE)) == named
    pairs = {
        (values[part]["tls"]["certificateKey"], values[part]["tls"]["privateKeyKey"]) for part in ("gateway", "proxy")
    }
    assert pairs == {("tls.crt", "tls.key")}, "the keys that `kubectl create secret tls` gives"
