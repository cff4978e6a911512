"""Kafka Streams' jar: once a machine, offline afterwards."""

from __future__ import annotations

import os
from pathlib import Path

from tierstate.sandbox.artifacts import NEWEST, Jars, cached, sums_of
from tierstate.state.errors import Unavailable

HERE = Path(__file__).parent


def kafka_streams_jar() -> Path | None:
    """Its folder. None on a machine that cannot fetch it; with TIERSTATE_CI=1 that is a failure."""
    sums = sums_of(HERE / "kafka_streams.sha256")
    try:
        name = f"kafka-streams-{NEWEST}"
        return cached(Jars(name, f"Kafka Streams {NEWEST}", HERE / "kafka_streams.xml", NEWEST, sums, 2))
    except Unavailable:
        if os.environ.get("TIERSTATE_CI") == "1":
            raise
        return None
