"""A follower process: ``python -m bench.follow TOPIC STATE 0,1,2`` replays these tier-state partitions.

Prints ``ready``, waits for a line, and prints what it saw as JSON: when it began, when all was replayed and when the
view of every partition had been asked for once (seconds of the machine's clock), and its peak of memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.runtime.clock import SystemClock

from .recorded_topic import RecordedTopic


@dataclass(frozen=True, slots=True)
class Followed:
    """Seconds from the start of the first process to the end of the last; peak memory of the largest process."""

    replay_s: float
    views_s: float
    readable: int
    peak_mib: float


def follow(topic: Path, state: Path, shares: Sequence[Sequence[int]]) -> Followed:
    """Run one process for each share of the tier-state partitions, all at once."""
    processes = []
    for at, share in enumerate(shares):
        (state / str(at)).mkdir()
        arguments = [str(topic), str(state / str(at)), ",".join(map(str, share))]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "bench.follow", *arguments],
                cwd=Path(__file__).resolve().parents[1],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise SystemExit("a follower process did not start")
        answers = [json.loads(answer) for answer in _answers(processes)]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    began = min(each["began"] for each in answers)
    return Followed(
        max(each["replayed"] for each in answers) - began,
        max(each["viewed"] for each in answers) - began,
        sum(each["readable"] for each in answers),
        max(each["peak_mib"] for each in answers),
    )


def _answers(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate()[0] for process in processes]


def main(topic_folder: str, state: str, numbers: str) -> None:
    topic = RecordedTopic(Path(topic_folder))
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    follower = open_view(
        topic,
        "cluster",
        SystemClock(),
        Following(tier_partitions=[int(number) for number in numbers.split(",") if number], tail=False),
        state_dir=Path(state),
    )
    replayed = time.monotonic()
    readable = sum(len(follower.partition(partition).readable) for partition in follower.partitions())
    viewed = time.monotonic()
    follower.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024)
    print(
        json.dumps({"began": began, "replayed": replayed, "viewed": viewed, "readable": readable, "peak_mib": peak}),
        flush=True,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
