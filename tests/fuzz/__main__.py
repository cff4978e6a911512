"""Fuzz one target: ``python -m tests.fuzz batches --cases 2000 --seed 1``; a case again with ``--case N``.

With ``--minutes 60 --corpus build/fuzz`` the run is guided by the lines that a case reaches (`guided.py`), and goes on
from the corpus of earlier runs; a file that breaks a promise is read again with ``--input FILE``.
A process that is warm may take the target's ``room`` of further memory (by `RLIMIT_DATA`), and no case may take longer
than `CASE_S`. A broken promise is shown with the command that repeats it, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import resource
import sys
import tempfile
import traceback
from pathlib import Path
from random import Random

from tests.fuzz.guided import Growing
from tests.fuzz.targets import TARGETS, Target
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import TierstateError

WARM_AFTER = 5
"""After this many plain seeds, everything that is compiled and reserved once (Arrow's pool: 1 GiB) is there."""
CASE_S = 60
"""The time limit on a machine with much other work."""


def data_bytes() -> int:
    """Return the bytes that count for `RLIMIT_DATA` now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))


def limit(more: int) -> None:
    """Allow this process so many bytes in addition to those that it has."""
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + more, resource.RLIM_INFINITY))


def attempt(target: Target, data: bytes, random: Random, folder: Path) -> str | None:
    """Return the name of the error that refused the data, or None if it was read. Raise any error that is not ours."""
    try:
        target.read(data, random, folder)
    except TierstateError as error:
        return type(error).__name__
    return None


def guided(target: Target, seeds: list[bytes], corpus: Path, folder: Path, minutes: float) -> int:
    growing = Growing(target, corpus, folder, SystemClock())
    bad = growing.run(seeds, minutes * 60)
    print(f"{corpus.name}: {growing.cases} cases, {len(growing.kept)} kept, {len(growing.known)} places")
    if bad is not None:
        print(f"a promise is broken; again: python -m tests.fuzz {corpus.name} --input {bad}", file=sys.stderr)
    return 0 if bad is None else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="this one alone")
    parser.add_argument("--minutes", type=float, help="guided, so long, instead of --cases")
    parser.add_argument("--corpus", type=Path, default=Path("build/fuzz"), help="what a guided run keeps, by target")
    parser.add_argument("--input", type=Path, help="this file alone")
    options = parser.parse_args()
    target = TARGETS[options.target]
    seeds = target.seeds()
    outcomes: dict[str | None, int] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, seed in enumerate(seeds):
            if number == WARM_AFTER:
                limit(target.room * (1 if options.minutes is None else 2))  # a guided run also keeps the pairs of lines
            with contextlib.suppress(TierstateError):
                target.read(seed, Random(0), folder)
        if options.input is not None:
            print(attempt(target, data := options.input.read_bytes(), Random(data), folder) or "read")
            return 0
        if options.minutes is not None:
            return guided(target, seeds, options.corpus / options.target, folder, options.minutes)
        for number in range(options.cases) if options.case is None else [options.case]:
            random = Random(f"{options.target} {options.seed} {number}")
            data = target.case(seeds, random)
            faulthandler.dump_traceback_later(CASE_S, exit=True)
            try:
                outcome = attempt(target, data, random, folder)
            except BaseException:
                again = f"python -m tests.fuzz {options.target} --seed {options.seed} --case {number}"
                print(f"{traceback.format_exc()}\n{len(data)} bytes: {data[:200]!r}\nagain: {again}", file=sys.stderr)
                return 1
            faulthandler.cancel_dump_traceback_later()
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    counts = ", ".join(f"{count} {kind or 'read'}" for kind, count in sorted(outcomes.items(), key=lambda one: -one[1]))
    print(f"{options.target}: {sum(outcomes.values())} cases, {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
