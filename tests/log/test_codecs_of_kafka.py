"""A log that Kafka serves is not refused by its tier: what Kafka's own reader unpacks, ours does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.log.batches import block_rows
from tests.log.codec_cases import CASES, Case, table
from tierstate.log.decode import decode_records
from tierstate.sandbox.artifacts import find_java, kafka_libs
from tierstate.state.errors import CorruptData

FORMATS = Path(__file__).parents[2] / "docs" / "formats.md"


def dumped(folder: Path, cases: list[Case]) -> subprocess.CompletedProcess[str]:
    """Run Kafka's own tool, which reads batches as its consumer does."""
    files = []
    for case in cases:
        file = folder / str(case) / f"{0:020}.log"
        file.parent.mkdir()
        file.write_bytes(case.batch)
        files.append(str(file))
    tool = [
        find_java(),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{kafka_libs()}/*",
        "org.apache.kafka.tools.DumpLogSegments",
    ]
    command = [*tool, "--deep-iteration", "--print-data-log", "--files", ",".join(files)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def values(case: Case) -> list[bytes | None]:
    return [row[4] for block in decode_records(case.batch, source="f") for row in block_rows(block)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_way_of_packing_is_read_or_refused_as_the_table_says(case: Case) -> None:
    if case.read:
        assert values(case) == [b"v%d" % at * 40 for at in range(3)]
    else:
        with pytest.raises(CorruptData, match="file=f"):
            values(case)


def test_kafkas_own_reader_reads_what_the_table_says(tmp_path: Path) -> None:
    cases = [case for case in CASES if case.kafka]
    done = dumped(tmp_path, cases)
    assert done.returncode == 0, done.stderr
    for at in range(3):
        assert done.stdout.count(f"payload: {f'v{at}' * 40}") == len(cases)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if not case.kafka], ids=str)
def test_kafkas_own_reader_refuses_what_the_table_says(tmp_path: Path, case: Case) -> None:
    done = dumped(tmp_path, [case])
    assert done.returncode != 0
    assert "Exception" in done.stderr


def test_the_table_of_the_documentation_is_this_one() -> None:
    assert table() in FORMATS.read_text()
