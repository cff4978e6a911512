"""How long an agent needs after a restart of its broker: it writes a term for each partition that it leads.

200 topics of 10 empty partitions. Bytes are the growth of the tier-state topic's files. One run.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from tierstate.sandbox.kafka import KafkaSandbox

from .agent_idle import PARTITIONS, TIERSTATE, TIMERS, TOPICS, _Agent, _create, _settings
from .rows import Row

LONGEST_S = 600.0


def measure(quick: bool = False) -> list[Row]:
    """About 3 minutes and 1 GB of memory, most of it the broker's."""
    topics = 5 if quick else TOPICS
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tierstate-bench-")))
        kafka = opened.enter_context(KafkaSandbox(properties=TIMERS))
        config = _settings(folder, kafka)
        subprocess.run([*TIERSTATE, "init", "--config", str(config)], check=True, stdout=subprocess.DEVNULL)
        _create(kafka, topics)
        number = topics * PARTITIONS + 1
        agent = opened.enter_context(_Agent(folder, config))
        _terms(agent, number)
        first = _seconds(agent, 0, number)
        before = _written(kafka)
        kafka.stop(0)
        kafka.start(0)
        answers = time.time()
        _terms(agent, 2 * number)
        last = _at(agent, 2 * number - 1) - answers
        grown = _written(kafka) - before
    return [
        Row(f"first terms of {number:,} partitions, from the first to the last", first, "s"),
        Row("a broker restart: from its first answer to the last term", last, "s"),
        Row("what the tier-state topic grew by, a partition", grown / number, "bytes"),
    ]


def _terms(agent: _Agent, number: int) -> None:
    """Wait until ``number`` terms have started."""
    deadline = time.monotonic() + LONGEST_S
    while len(agent.events("term started")) < number:
        if time.monotonic() > deadline:
            raise SystemExit("the terms did not begin")
        time.sleep(1)


def _at(agent: _Agent, number: int) -> float:
    return datetime.fromisoformat(agent.events("term started")[number]["timestamp"]).timestamp()


def _seconds(agent: _Agent, first: int, stop: int) -> float:
    return _at(agent, stop - 1) - _at(agent, first)


def _written(kafka: KafkaSandbox) -> int:
    folders = kafka.brokers[0].log_dir.glob("_tier-state-*")
    return sum(file.stat().st_size for folder in folders for file in folder.glob("*.log"))
