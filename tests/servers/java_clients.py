"""Jars of Java programs that read Kafka, other than Kafka's own client: fetched once a machine, offline afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tierstate.sandbox.artifacts import NEWEST, Jars, cached, sums_of
from tierstate.state.errors import Unavailable

HERE = Path(__file__).parent
FLINK = "2.2.1"


def kafka_streams() -> Path:
    """Return the folder, to be used with the sandbox's jars. Skips the test, as the others do, if it is unavailable."""
    return _brought("kafka_streams", "Kafka Streams", NEWEST, 2)


def kafka_connect() -> Path:
    """Return the file sink and MirrorMaker, to be used with the sandbox's jars, which have the worker."""
    return _brought("kafka_connect", "Kafka Connect", NEWEST, 1)


def flink() -> Path:
    """Return Flink with its Kafka source, and the clients that this brings."""
    return _brought("flink", "Flink", FLINK, 71)


def kafka_console(release: str) -> Path:
    """Return the console consumer of 3.4.1 or 2.8.2, releases that the sandbox does not have, and its clients."""
    return _brought("kafka_console", "Kafka's console consumer", release, 33, f"kafka_console-{release}")


def _brought(name: str, title: str, release: str, megabytes: int, sums_name: str = "") -> Path:
    """Fetch the jars. A machine that cannot fetch them skips the test; with TIERSTATE_CI=1 that is a failure.

    ``sums_name``: the list of sums, if a set has one per release.
    """
    folder, title = f"{name.replace('_', '-')}-{release}", f"{title} {release}"
    sums = sums_of(HERE / f"{sums_name or name}.sha256")
    try:
        return cached(Jars(folder, title, HERE / f"{name}.xml", release, sums, megabytes))
    except Unavailable as error:
        if os.environ.get("TIERSTATE_CI") == "1":
            raise
        pytest.skip(f"{title} cannot be had: {error}")
