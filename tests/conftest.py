"""Real Kafka for every room's tests: one broker that all share, and three for those that need them."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tierstate.sandbox.artifacts import RELEASES
from tierstate.sandbox.kafka import KafkaSandbox

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts us by & has it ignored, for children too


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that wait for real processes come first, so that no worker is left with one of them in the end."""
    items.sort(key=lambda item: item.path.parent.name != "scenarios")


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaSandbox]:
    """One broker for the whole run: shared, so use topic names nobody else has (`topic_name`) and never stop it."""
    sandbox = KafkaSandbox().open()
    yield sandbox
    sandbox.close(keep_logs=request.session.testsfailed > 0)


@pytest.fixture(scope="module")
def kafka_three(request: pytest.FixtureRequest) -> Iterator[KafkaSandbox]:
    """Three brokers for one file of tests: kill, freeze and start them as you like, and leave all three running."""
    failed = request.session.testsfailed
    sandbox = KafkaSandbox(3).open()
    yield sandbox
    sandbox.close(keep_logs=request.session.testsfailed > failed)


@pytest.fixture(scope="module")
def kafka_older(request: pytest.FixtureRequest) -> Iterator[KafkaSandbox]:
    """One broker of the oldest release we are tried on, for one file of tests: stop and start it as you like."""
    failed = request.session.testsfailed
    sandbox = KafkaSandbox(release=RELEASES[-1]).open()
    yield sandbox
    sandbox.close(keep_logs=request.session.testsfailed > failed)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name of this test alone."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.nodeid)[-200:].strip("-")
