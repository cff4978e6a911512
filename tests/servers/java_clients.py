"""Jars of what reads Kafka in Java beside Kafka's own client: once a machine, offline afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tierstate.sandbox.artifacts import NEWEST, Jars, cached, sums_of
from tierstate.state.errors import Unavailable

HERE = Path(__file__).parent


def kafka_streams() -> Path:
    """The folder; to be used beside the sandbox's jars. Skips the test, as the others do, where it cannot be had."""
    return _brought("kafka_streams", "Kafka Streams", NEWEST, 2)


def kafka_connect() -> Path:
    """Its file sink and MirrorMaker; to be used beside the sandbox's jars, which have the worker."""
    return _brought("kafka_connect", "Kafka Connect", NEWEST, 1)


def flink() -> Path:
    """With its Kafka source, and the clients that brings."""
    return _brought("flink", "Flink", "2.2.1", 71)


def _brought(name: str, title: str, release: str, megabytes: int) -> Path:
    """On a machine that cannot fetch them the test is skipped; with TIERSTATE_CI=1 that is a failure."""
    folder, title = f"{name.replace('_', '-')}-{release}", f"{title} {release}"
    sums = sums_of(HERE / f"{name}.sha256")
    try:
        return cached(Jars(folder, title, HERE / f"{name}.xml", release, sums, megabytes))
    except Unavailable as error:
        if os.environ.get("TIERSTATE_CI") == "1":
            raise
        pytest.skip(f"{title} cannot be had: {error}")
