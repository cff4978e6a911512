"""Run many histories on all cores, resumably. The ledger next to this file records which ones were tried.

make prove HISTORIES=100000 FROM_SEED=0
python -m tests.histories.prove --guards            # which history breaks without which guard
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.histories.cloned import ClonedWorld
from tests.histories.guards import GUARDS, without
from tests.histories.history import broken, smallest
from tests.histories.moved import MovedWorld
from tests.histories.restored import RestoredWorld

ROOT = Path(__file__).parents[2]
LEDGER = Path(__file__).with_name("ledger.json")
BLOCK = 250
APART: dict[str, type[ClonedWorld] | type[MovedWorld] | type[RestoredWorld]] = {
    "copied cluster": ClonedWorld,
    "moved store": MovedWorld,
    "restored topic": RestoredWorld,
}
APART_EVERY = 50
"""Every fiftieth seed also runs one world of each kind in `APART`."""
FETCHED_EVERY = 10
"""Every tenth seed also runs a history whose agents copy by Fetch."""
LOADED = """
import sys, tests.histories.prove
print(*(module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)), sep="\\n")
"""


def proven_files() -> list[Path]:
    """Return, sorted, every file of this checkout that a fresh interpreter loads for the histories, and the schemas."""
    listed = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {Path(line).resolve() for line in listed.stdout.splitlines()}
    ours = {file for file in loaded if file.is_relative_to(ROOT) and not file.is_relative_to(sys.prefix)}
    return sorted(ours | {*(ROOT / "schemas").glob("*.avsc")})


def code_digest(files: Iterable[Path]) -> str:
    """Return the digest of these files, names and contents. A proof counts only for the code of its digest."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def run_block(first: int, stop: int) -> tuple[int, int, list[tuple[int, int | None, str]], Counter[str]]:
    """Run histories ``first`` to ``stop`` - 1. Return both bounds, the broken histories, and counts of all events.

    A broken history is (seed, step, promise); the step is None for a world of `APART` and for agents that fetch.
    """
    seen: Counter[str] = Counter()
    bad: list[tuple[int, int | None, str]] = []
    for seed in range(first, stop):
        found = broken(seed, seen=seen)
        if found is not None:
            bad.append((seed, *found))
        if seed % FETCHED_EVERY == 0 and (found := broken(seed, seen=seen, source="fetch")) is not None:
            bad.append((seed, None, f"step {found[0]}: {found[1]}: tests.histories.history {seed} --source fetch"))
        if seed % APART_EVERY == 0:
            bad += [(seed, None, f"{name}: {promise}") for name, promise in broken_apart(seed, seen)]
    return first, stop, bad, seen


def broken_apart(seed: int, seen: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, promise) for each world of `APART` that breaks a promise."""
    for name, make in APART.items():
        world = make(seed)
        try:
            world.run()
        except AssertionError as error:
            yield name, str(error)
        seen.update([name, *(f"{name}: {what}" for what in world.seen)])


class Ledger:
    """The seeds that were tried on each version of the code: one entry with ranges, event counts and seconds."""

    def __init__(self, path: Path = LEDGER) -> None:
        self._path = path
        self._entries: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
        code = code_digest(proven_files())
        found = next((entry for entry in self._entries if entry["code"] == code), None)
        self.entry = found or {"code": code, "ranges": [], "seconds": 0, "seen": {}}

    def missing(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Return the blocks ``(start, stop)`` of this range that were not tried yet."""
        done = {seed for a, b in self.entry["ranges"] for seed in range(a, b)}
        blocks = []
        for at in range(first, stop, BLOCK):
            left = [seed for seed in range(at, min(at + BLOCK, stop)) if seed not in done]
            if left:
                blocks.append((left[0], left[-1] + 1))
        return blocks

    def add(self, first: int, stop: int, seen: Counter[str], seconds: float) -> None:
        """Add a block without a broken promise, and write the file: an interrupted run continues from here."""
        ranges = sorted([*self.entry["ranges"], [first, stop]])
        merged: list[list[int]] = []
        for a, b in ranges:
            if merged and a <= merged[-1][1]:
                merged[-1][1] = max(b, merged[-1][1])
            else:
                merged.append([a, b])
        total = Counter(self.entry["seen"])
        total.update(seen)
        self.entry.update(
            ranges=merged, seconds=round(self.entry["seconds"] + seconds), seen=dict(sorted(total.items()))
        )
        others = [entry for entry in self._entries if entry["code"] != self.entry["code"]]
        self._path.write_text(json.dumps([*others[-4:], self.entry], indent=1) + "\n")


def prove(histories: int, from_seed: int, jobs: int) -> int:
    ledger = Ledger()
    blocks = ledger.missing(from_seed, from_seed + histories)
    todo = sum(stop - first for first, stop in blocks)
    print(f"code {ledger.entry['code']}: {histories - todo} of {histories} histories done before, {todo} to go")
    began, tried, failed = time.monotonic(), 0, 0
    with ProcessPoolExecutor(jobs, initializer=_collect_rarely) as pool:
        for done in as_completed([pool.submit(run_block, first, stop) for first, stop in blocks]):
            first, stop, bad, seen = done.result()
            tried += stop - first
            took = time.monotonic() - began
            if not bad:
                ledger.add(first, stop, seen, took * (stop - first) / tried)
            failed += len(bad)
            for seed, step, promise in bad:
                print(f"BROKEN seed {seed}, step {step}: {promise}")
                if step is None:
                    print(f"  python -m tests.histories.prove --histories 1 --from-seed {seed}", flush=True)
                    continue
                few = ",".join(map(str, smallest(seed, step)))
                print(f"  python -m tests.histories.history {seed} --steps {few}", flush=True)
            left = (todo - tried) * took / tried
            print(
                f"\r{tried} of {todo}, {failed} broken, {tried / took:.0f} a second, {left:.0f} s left ",
                end="",
                flush=True,
            )
            if failed >= 10:
                pool.shutdown(cancel_futures=True)
                break
    print()
    print("\n".join(f"  {count:9d}  {what}" for what, count in sorted(ledger.entry["seen"].items())))
    return 1 if failed else 0


def _collect_rarely() -> None:
    """Collect garbage less often, which saves a tenth of the time: a world becomes garbage only at its end."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def search(name: str, bound: int) -> tuple[str, int | None, str]:
    """Return the guard's name, the first seed below ``bound`` that breaks without it (or None), and the promise."""
    with without(name):
        for seed in range(bound):
            found = broken(seed)
            if found is not None:
                return name, seed, found[1]
    return name, None, ""


def search_all(names: list[str], bound: int, jobs: int) -> int:
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(search, name, bound) for name in names]):
            name, seed, promise = done.result()
            print(f"{name:40s} {'nothing found' if seed is None else f'seed {seed}: {promise}'}"[:200], flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=2000)
    parser.add_argument("--from-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--guards", nargs="*", help="search for a history that breaks without each guard (or these)")
    given = parser.parse_args()
    if given.guards is not None:
        return search_all(given.guards or list(GUARDS), given.histories, given.jobs)
    return prove(given.histories, given.from_seed, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
