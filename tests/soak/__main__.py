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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "soak")
    parser.add_argument("--json", action="store_true", help="print the report as JSON; progress goes to stderr")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    shutil.rmtree(arguments.out, ignore_errors=True)
    soak = Soak(arguments.out, arguments.seed, say=lambda line: print(line, file=sys.stderr, flush=True))
    try:
        soak.open().run(arguments.minutes)
        soak.settle()
    except Interrupted:
        soak.interrupted = True
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        soak.close()
    report = document(soak)
    (arguments.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2) if arguments.json else pages(report))
    if soak.interrupted:
        return 130
    if not soak.complaints:
        shutil.rmtree(arguments.out / "work", ignore_errors=True)  # kept when something is to be examined
    return 1 if soak.complaints else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


if __name__ == "__main__":
    sys.exit(main())
