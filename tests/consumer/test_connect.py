"""Wrong arguments of `tierstate.connect` are named, before anything is connected."""

from __future__ import annotations

from typing import Any

import pytest

from tierstate import connect, errors, read_records


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka": "127.0.0.1:9092"}, "kafka is a mapping"),
        ({"settings": "s3://bucket"}, "settings is a mapping"),
        ({"bootstrap": {"bootstrap.servers": "127.0.0.1:9092"}}, "bootstrap is a text"),
        ({"gateway": "http://127.0.0.1:1", "store": "s3://bucket"}, "gateway stands alone"),
        ({"gateway": "http://127.0.0.1:1", "source": "bucket"}, "gateway stands alone"),
        ({"store": "s3://bucket", "source": "cluster"}, "view.source"),
        ({"source": "bucket"}, "store.url"),
        ({"token": "secret"}, "token is for a gateway"),
        ({"store": "s3://bucket", "ca_file": "/ca.pem"}, "ca_file is for a gateway"),
        ({"gateway": "http://g", "user": "ann"}, "a token, or user and password"),
        ({"gateway": "http://g", "user": "ann", "password": "a", "token": "t"}, "a token, or user and password"),
        ({"bootstrap": "127.0.0.1:9092"}, "store.url"),
        ({"store": "s3://bucket"}, "kafka.bootstrap.servers"),
        (
            {"bootstrap": "127.0.0.1:9092", "store": "s3://one", "settings": {"store.url": "s3://another"}},
            "settings and store say two things of store.url: give one. settings=s3://another store=s3://one",
        ),
        (
            {"bootstrap": "127.0.0.1:1", "kafka": {"bootstrap.servers": "127.0.0.1:2"}, "store": "s3://bucket"},
            "kafka and bootstrap say two things",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_the_right_one(given: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=said):
        connect(**given)


def test_a_store_named_twice_is_refused_and_a_password_is_not_shown() -> None:
    with pytest.raises(errors.InvalidRequest, match=r"store\.url: give one\. settings=s3://another store=s3://one"):
        read_records({}, "s3://one", "orders", 0, 0, 1, settings={"store.url": "s3://another"})
    passwords = {"kafka.sasl.password": "hunter1"}
    with pytest.raises(errors.InvalidRequest, match="settings and kafka say two things") as refused:
        read_records({"sasl.password": "hunter2"}, "s3://one", "orders", 0, 0, 1, settings=passwords)
    assert "hunter" not in str(refused.value)
    read_records({}, "s3://one", "orders", 0, 0, 1, settings={"store.url": "s3://one"}).close()


@pytest.mark.parametrize(
    ("kafka", "settings", "said"),
    [
        ("127.0.0.1:9092", None, r'kafka is a mapping, as in kafka={"bootstrap\.servers": "host:9092"}. given=str'),
        ({}, "s3://bucket", "settings is a mapping"),
    ],
)
def test_a_text_in_the_place_of_a_mapping_is_named(kafka: Any, settings: Any, said: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=said):
        read_records(kafka, "s3://bucket", "orders", 0, 0, 1, settings=settings)


def test_a_closed_object_says_so() -> None:
    with connect("127.0.0.1:1", "file:///nowhere") as log:
        assert "closed" not in repr(log)
    assert "closed" in repr(log)
    with pytest.raises(errors.InvalidRequest, match="closed"):
        log.topics()
