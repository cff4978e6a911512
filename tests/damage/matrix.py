"""The damage matrix: what each reader and each check makes of each damage, and the table of it, `damage.md`.

python -m tests.damage.matrix            # run all of it, and print what differs from `results.json`
python -m tests.damage.matrix --write    # run all of it, into `results.json` and `damage.md` (five minutes)
python -m tests.damage.matrix --page     # what `results.json` has, into `damage.md`
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.damage.damages import Damage, damages
from tests.damage.readers import OTHERS, PIECES, SEGMENTS, Reader, checked_export, exported, found_by_verify, table_log
from tests.damage.segments import FORMS, TOPIC, TOPIC_ID, Form, Row, Segments, made_segments
from tests.lake.tables import TableWorld
from tierstate.lake.table_check import check_table
from tierstate.state.errors import TierstateError
from tierstate.state.offsets import Extent, Offset
from tierstate.storage.memory import MemoryStore

PAGE = Path(__file__).with_name("damage.md")
RESULTS = Path(__file__).parent / "results.json"
BEGIN, END = "<!-- damage -->\n", "<!-- /damage -->"
PART = Extent(Offset(57), Offset(66))
"""A range within the damaged segment: it begins and ends inside a batch, and a leader epoch begins in it."""
EQUAL, REFUSED, LATE, SILENT, UNNAMED, BROKEN = "equal", "refused", "late", "silent", "unnamed", "broken"
"""Delivered as it was written; refused by an error that names the object or the partition; refused after wrong records
were handed out; damage that was not reported; an error without a name; an error that is not ours."""
FAULTS = (LATE, SILENT, UNNAMED, BROKEN)
WHOLE_COLUMN, CONSUMER, PIECES_COLUMN, PART_COLUMN, TIME_COLUMN, DUMP, CHECKS, VERIFY = (
    "from end to end",
    "TieredConsumer",
    "gateway, proxy",
    "a part",
    "by time",
    "dump-log",
    "export --check, table check",
    "verify",
)
Cell = dict[str, list[str]]
"""Outcome to the forms of segments that have it."""
Results = dict[str, dict[str, Cell]]
"""Row to column to cell."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``said``: the text of the error."""

    row: str
    column: str
    form: str
    what: str
    said: str
    damage: str
    reader: str


def outcome_of(reader: Reader, segments: Segments, extent: Extent, expected: list[Row]) -> tuple[str, str]:
    """Return the outcome of a read, and the text of its error."""
    rows = list[Row]()
    try:
        # one more than expected is enough
        rows.extend(islice(reader.rows(segments, extent), len(expected) + 1))
    except TierstateError as error:
        if not reader.whole and rows != expected[: len(rows)]:
            return LATE, str(error)
        return _refusal(segments, error)
    except Exception as error:
        return BROKEN, f"{type(error).__name__} {error}"
    return EQUAL if rows == expected else SILENT, ""


def _refusal(segments: Segments, error: TierstateError) -> tuple[str, str]:
    text = str(error)
    named = segments.segment.object_key in text or f"{TOPIC}-0" in text
    return REFUSED if named else UNNAMED, text


def _checked(segments: Segments, check: Callable[[], Iterable[object]]) -> tuple[str, str]:
    try:
        findings = [*check()]
    except TierstateError as error:
        return _refusal(segments, error)
    except Exception as error:
        return BROKEN, f"{type(error).__name__} {error}"
    return REFUSED if findings else EQUAL, " ".join(map(str, findings))


Probe = tuple[str, str, Callable[[], tuple[str, str]]]
"""Column, reader, and the function that runs it."""


@contextmanager
def probes(segments: Segments, folder: Path) -> Iterator[list[Probe]]:
    """Yield all checks to run on each damage. A reader's rows of whole objects are those that it must hand out."""
    checks = list[Probe]()
    pairs = [(SEGMENTS, WHOLE_COLUMN, PART_COLUMN), (PIECES, PIECES_COLUMN, PIECES_COLUMN)]
    pairs += [((OTHERS[0],), CONSUMER, CONSUMER), ((OTHERS[1],), TIME_COLUMN, TIME_COLUMN), ((OTHERS[2],), DUMP, DUMP)]
    for readers, whole, part in pairs:
        for reader in readers:
            for column, extent in ((whole, segments.extent), (part, PART)):
                rows = list(reader.rows(segments, extent))
                if reader.of_rows:
                    assert rows == segments.expected(extent, reader.one_segment), (segments.form, reader.name)

                def ask(reader: Reader = reader, extent: Extent = extent, rows: list[Row] = rows) -> tuple[str, str]:
                    return outcome_of(reader, segments, extent, rows)

                checks.append((column, reader.name, ask))
    place = MemoryStore()
    export = (place, *exported(segments, segments.extent, place))
    checks.append((CHECKS, "export --check", lambda: _checked(segments, lambda: checked_export(segments, export))))
    if not segments.form.encrypted:
        checks.append((CHECKS, "table check", _table_check(segments, folder)))
    checks.append((VERIFY, "verify", lambda: _verified(segments)))
    assert all(ask()[0] in (EQUAL, "not found") for _, _, ask in checks)
    yield checks


def _table_check(segments: Segments, folder: Path) -> Callable[[], tuple[str, str]]:
    with segments.reader() as reader, patch("tests.lake.tables.TOPIC_ID", TOPIC_ID):
        golden: Any = SimpleNamespace(reader=reader, local=None, tiers=segments.tiers)
        world = TableWorld(golden, folder, local=False)
        world.follow()
        made = world.table()

    def check() -> tuple[str, str]:
        with segments.reader() as reader:
            return _checked(segments, lambda: check_table(made, table_log(segments, reader)).findings)

    return check


def _verified(segments: Segments) -> tuple[str, str]:
    for level in (1, 2, 3):
        if findings := found_by_verify(segments, level):
            return f"level {level}", " ".join(findings)
    return "not found", ""


def outcomes(form: Form, chosen: Callable[[Damage], bool] = lambda damage: True) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory() as folder, made_segments(form, Path(folder) / "made") as segments:
        with probes(segments, Path(folder) / "table") as checks:
            for damage in filter(chosen, damages(segments)):
                segments.put(damage.objects)
                for column, reader, ask in checks:
                    what, text = ask()
                    yield Outcome(": ".join(damage.row), column, form.name, what, text, str(damage), reader)


def results_of(found: Iterable[Outcome]) -> Results:
    results: Results = {}
    for outcome in found:
        forms = results.setdefault(outcome.row, {}).setdefault(outcome.column, {}).setdefault(outcome.what, [])
        if outcome.form not in forms:
            forms.append(outcome.form)
    return results


def known() -> Results:
    """Return the results of the last run of the whole matrix."""
    results: Results = json.loads(RESULTS.read_text())
    return results


COLUMNS = (WHOLE_COLUMN, PART_COLUMN, CONSUMER, PIECES_COLUMN, TIME_COLUMN, DUMP, CHECKS, VERIFY)


def table(results: Results) -> str:
    """Return the table in Markdown. Regions of an object with the same outcomes share one line."""
    lines: dict[tuple[str, str], list[str]] = {}
    for row, columns in results.items():
        kind, _, region = row.partition(": ")
        cells = " | ".join(_cell(columns.get(column, {})) for column in COLUMNS)
        lines.setdefault((kind, cells), []).append(region)
    text = f"| object | region | {' | '.join(COLUMNS)} |\n" + "|---" * (len(COLUMNS) + 2) + "|\n"
    order = ("log", "indexes", "manifest", "all three")
    for (kind, cells), regions in sorted(lines.items(), key=lambda each: order.index(each[0][0])):
        text += f"| {kind} | {', '.join(regions)} | {cells} |\n"
    return text


def _cell(cell: Cell) -> str:
    parts = []
    for what, forms in sorted(cell.items()):
        named = "" if len(forms) == len(FORMS) or what not in FAULTS else f" ({', '.join(forms)})"
        parts.append(f"**{what}**{named}" if what in FAULTS else what)
    return ", ".join(parts)


def shown(page: str) -> str:
    """Return the table that a page holds."""
    return page.partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    if "--page" in sys.argv[1:]:
        write_page(known())
        return
    logging.disable()  # the gateway logs every refusal
    rows = [outcome for form in FORMS for outcome in outcomes(form)]
    for one in rows:
        if one.what in FAULTS:
            print(one.what, one.form, one.reader, one.column, one.damage, one.said, sep=" | ", file=sys.stderr)
    results = results_of(rows)
    if "--write" not in sys.argv[1:]:
        print("as it is known" if results == known() else "not as it is known")
        return
    lines = ",\n".join(f"{json.dumps(row)}: {json.dumps(cells)}" for row, cells in results.items())
    RESULTS.write_text(f"{{\n{lines}\n}}\n")
    write_page(results)


def write_page(results: Results) -> None:
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table(results)}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
