"""`tierstate restore acls`, `quotas` and `subjects` add what a backup has, and change nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.broker.guarded import allow, binding
from tests.scenarios.house import House
from tests.servers.schema_registry import Registry, registry
from tierstate.broker.administration import quotas, set_quotas
from tierstate.broker.open import open_broker
from tierstate.sandbox.kafka import KafkaSandbox

ORDER, PRODUCT = '{"type":"record","name":"O","fields":[{"name":"p","type":"P"}]}', '{"type":"enum","name":"P"}'


@pytest.fixture
def house(guarded_kafka: KafkaSandbox, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    made = House(guarded_kafka, tmp_path / "house", f"definitions{len(request.node.name)}")
    made.run("init")
    yield made
    made.close()


@pytest.fixture
def target(tls_kafka: KafkaSandbox, tmp_path: Path) -> list[str]:
    """Return the flag with the properties of a cluster behind TLS, SASL and ACLs."""
    file = tmp_path / "new.properties"
    file.write_text("# the new cluster\n" + "\n".join(f"{k} = {v}" for k, v in tls_kafka.client_config.items()))
    return ["--command-config", str(file)]


def quota(user: str | None, **values: float) -> dict[str, Any]:
    return {"entity": {"user": user}, "values": values}


@pytest.mark.kafka
def test_access_lists_and_quotas_of_a_backup_are_added_once_and_nothing_else_changes(
    house: House, tls_kafka: KafkaSandbox, target: list[str]
) -> None:
    bound = [binding("ann", ResourceType.TOPIC, "orders", each) for each in (AclOperation.READ, AclOperation.WRITE)]
    allow(house.kafka, bound)
    allow(tls_kafka, [binding("bob", ResourceType.TOPIC, "orders", AclOperation.READ), bound[0]])
    with open_broker(house.kafka.client_config) as broker:
        set_quotas(
            broker.raw,
            [
                quota("ann", producer_byte_rate=1e6, consumer_byte_rate=2e6),
                quota(None, request_percentage=50, producer_byte_rate=3e6),
            ],
        )
    with open_broker(tls_kafka.client_config) as broker:
        set_quotas(broker.raw, [quota("ann", producer_byte_rate=9e6)])
    house.run("backup")
    shown = house.json("restore", "acls", *target)
    acls_of_ann = {each["operation"]: each["state"] for each in shown["definitions"] if each["principal"] == "User:ann"}
    assert acls_of_ann == {"READ": "there", "WRITE": "new"}
    for state in ("new", "there"):
        done = house.json("restore", "acls", "--execute", *target)
        assert {each["state"] for each in done["definitions"] if each["operation"] == "WRITE"} == {state}
    admin: Any = AdminClient({**tls_kafka.client_config, "log_level": 0})
    everything = AclBindingFilter(
        ResourceType.TOPIC, "orders", ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    present = {f"{each.principal} {each.operation.name}" for each in admin.describe_acls(everything).result(30)}
    assert present == {"User:ann READ", "User:ann WRITE", "User:bob READ"}

    conflict = house.run("restore", "quotas", "--execute", *target, "--json", code=1)
    states = {(each["entity"], each["quota"]): each["state"] for each in json.loads(conflict.stdout)["definitions"]}
    assert states == {
        ("user=ann", "producer_byte_rate"): "conflict",
        ("user=ann", "consumer_byte_rate"): "new",
        ("user=<default>", "producer_byte_rate"): "new",
        ("user=<default>", "request_percentage"): "new",
    }
    with open_broker(tls_kafka.client_config) as broker:
        assert quotas(broker.raw) == [
            quota(None, producer_byte_rate=3e6, request_percentage=50.0),
            quota("ann", consumer_byte_rate=2e6, producer_byte_rate=9e6),
        ]


def source_registry() -> dict[int | str, Any]:
    order = {"subject": "orders-value", "version": 1, "id": 7, "schema": ORDER}
    order["references"] = [{"name": "P", "subject": "product", "version": 1}]
    return {
        "/subjects": (200, ["orders-value", "product"]),
        "/subjects/orders-value/versions": (200, [1]),
        "/subjects/orders-value/versions/1": (200, order),
        "/subjects/product/versions": (200, [1]),
        "/subjects/product/versions/1": (200, {"subject": "product", "version": 1, "id": 9, "schema": PRODUCT}),
    }


@pytest.fixture
def new_registry() -> Iterator[Registry]:
    with registry({"/subjects": (200, [])}) as server:
        yield server


@pytest.mark.kafka
def test_schemas_are_registered_with_their_ids_references_first_and_a_killed_run_goes_on(
    house: House, new_registry: Registry
) -> None:
    with registry(source_registry()) as server:
        house.run("backup", "--set", f"registry.url={server.url}")
    flags = ["--set", f"registry.url={new_registry.url}"]
    assert {each["state"] for each in house.json("restore", "subjects", *flags)["definitions"]} == {"new"}
    assert not [each for each in new_registry.asked if each.startswith("POST")]

    def refuse(path: str) -> None:
        if "orders-value" in path and not path.endswith("/1"):
            raise ConnectionError("the registry is killed")

    new_registry.before = refuse
    house.run("restore", "subjects", "--execute", *flags, code=3)
    new_registry.before = lambda path: None
    house.run("restore", "subjects", "--execute", *flags)
    posted = [each for each in new_registry.asked if each.startswith("POST")]
    assert posted[0] == "POST /subjects/product/versions"
    assert posted.count("POST /subjects/product/versions") == 1
    for subject, schema_id in {"orders-value": 7, "product": 9}.items():
        assert new_registry.answers[f"/subjects/{subject}/versions/1"][1]["id"] == schema_id
    assert new_registry.importing == set(), "no subject stays in mode IMPORT"
    assert {each["state"] for each in house.json("restore", "subjects", *flags)["definitions"]} == {"there"}
    new_registry.answers["/subjects/product/versions/1"][1]["id"] = 8
    again = house.run("restore", "subjects", "--execute", *flags, code=1)
    assert "the target has others of the same name" in again.stderr
