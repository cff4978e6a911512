"""``python -m tests.soak --minutes 10 --seed 1``: a report for people, and one for programs."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.soak.report import document, pages
from tests.soak.soak import Soak

ROOT = Path(__file__).parents[2]


class Interrupted(BaseException):
    """SIGINT or SIGTERM was received."""


def main() -> int:
    """Return 0 if the soak held, 1 after complaints, 130 if it was interrupted."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--minutes", type=float, default=10.0)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--out", type=Path, default=ROOT / "build" / "soak")
    asked.add_argument("--json", action="store_true", help="print the report as JSON; progress goes to stderr")
    given = asked.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    shutil.rmtree(given.out, ignore_errors=True)
    soak = Soak(given.out, given.seed, say=lambda line: print(line, file=sys.stderr, flush=True))
    try:
        soak.open().run(given.minutes)
        soak.settle()
    except Interrupted:
        soak.interrupted = True
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        soak.close()
    found = document(soak)
    (given.out / "report.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2) if given.json else pages(found))
    if soak.interrupted:
        return 130
    if not soak.complaints:
        shutil.rmtree(given.out / "work", ignore_errors=True)  # kept when something is to be examined
    return 1 if soak.complaints else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


if __name__ == "__main__":
    sys.exit(main())
