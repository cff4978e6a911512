"""Coverage-guided fuzzing: data that reaches new lines of the readers is kept, and mutated further.

    corpus/       data that reached something new, by its hash; a later run goes on from here
    corpus/bad/   data that broke a promise; ``python -m tests.fuzz TARGET --input FILE`` reads it again

A case reaches: pairs of lines of `ROOMS`, one after the other; the errors that it met, in words; and how often, by
powers of two. Compiled loops are seen by what they answer: each of their codes is another error.
"""

from __future__ import annotations

import faulthandler
import hashlib
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from tests.fuzz.mutate import batch_put_right, mutated
from tests.fuzz.targets import Target, batch_with_its_crc
from tierstate.runtime.clock import Clock
from tierstate.state.errors import TierstateError

CASE_S = 120
"""The time limit on a machine with much other work, line by line."""
KEPT_S = 1.0
ROOMS = ("/log/", "/schemas/", "/storage/segment/")

Reached = frozenset[tuple[object, ...]]


@contextmanager
def followed(edges: dict[tuple[str, int, int], int]) -> Iterator[None]:
    """Count pairs of lines of `ROOMS` that run one after the other."""
    files: dict[str, bool] = {}

    def start(frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in files:
            files[name] = "tierstate" in name and any(room in name for room in ROOMS)
        if not files[name]:
            return None
        last = 0

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal last
            if event == "line":
                edge = (name, last, frame.f_lineno)
                edges[edge] = edges.get(edge, 0) + 1
                last = frame.f_lineno
            return line

        return line

    before = sys.gettrace()
    sys.settrace(start)
    try:
        yield
    finally:
        sys.settrace(before)


def reached(target: Target, data: bytes, folder: Path) -> Reached:
    """Return what the data reaches: the same for the same bytes. Raise any error that is not ours."""
    edges: dict[tuple[str, int, int], int] = {}
    outcome = "read"
    with followed(edges):
        try:
            target.read(data, Random(data), folder)
        except TierstateError as error:
            outcome = f"{type(error).__name__} {re.sub('[0-9]+', '#', error.message)}"
    return frozenset({*((*edge, count.bit_length()) for edge, count in edges.items()), (outcome,)})


class Growing:
    """``kept``: data that reached something new. Data that takes longer than `KEPT_S` is tried, and not mutated."""

    def __init__(self, target: Target, corpus: Path, folder: Path, clock: Clock) -> None:
        self._target, self._corpus, self._folder, self._clock = target, corpus, folder, clock
        self.known: set[tuple[object, ...]] = set()
        self.kept: list[bytes] = []
        self.cases = 0

    def run(self, seeds: list[bytes], seconds: float) -> Path | None:
        """Fuzz until the time is over and return None, or until a promise breaks and return the file that breaks it."""
        (self._corpus / "bad").mkdir(parents=True, exist_ok=True)
        earlier = [file.read_bytes() for file in sorted(self._corpus.iterdir()) if file.is_file()]
        until = self._clock.monotonic() + seconds
        for data in chain([*seeds, *earlier], self._mutated()):
            began = self._clock.monotonic()
            if began >= until:
                return None
            try:
                places = self._reached(data)
            except Exception:
                traceback.print_exc()
                return _keep(self._corpus / "bad", data)
            self.cases += 1
            if not places <= self.known:
                self.known |= places
                _keep(self._corpus, data)
                if self._clock.monotonic() - began < KEPT_S:
                    self.kept.append(data)
        return None

    def _mutated(self) -> Iterator[bytes]:
        random = Random(len(self.kept))
        while True:
            youngest_first = self.kept[-1 - int(len(self.kept) * random.random() ** 2)]
            data = mutated(youngest_first, random, self.kept)
            yield batch_put_right(data) if self._target.deep is batch_with_its_crc and random.random() < 0.7 else data

    def _reached(self, data: bytes) -> Reached:
        faulthandler.dump_traceback_later(CASE_S, exit=True)
        try:
            return reached(self._target, data, self._folder)
        finally:
            faulthandler.cancel_dump_traceback_later()


def _keep(folder: Path, data: bytes) -> Path:
    file = folder / hashlib.sha256(data).hexdigest()[:16]
    file.write_bytes(data)
    return file
