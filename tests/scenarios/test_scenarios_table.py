"""`tests/scenarios/scenarios.md` names tests that exist, and every class of Kafka's tiered-storage scenarios."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE / "scenarios.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w./]+\.py)::(\w+)`", PAGE)))
KAFKAS_CLASSES = """
OffloadAndConsumeFromLeaderTest AlterLogDirTest BaseDeleteSegmentsTest DeleteSegmentsByRetentionSizeTest
DeleteSegmentsByRetentionTimeTest DeleteSegmentsDueToLogStartOffsetBreachTest DeleteTopicTest
EnableRemoteLogOnTopicTest DisableRemoteLogOnTopicTest FetchFromLeaderWithCorruptedCheckpointTest ListOffsetsTest
PartitionsExpandTest BaseReassignReplicaTest ReassignReplicaExpandTest ReassignReplicaMoveTest
ReassignReplicaShrinkTest RollAndOffloadActiveSegmentTest TransactionsWithTieredStoreTest
OffloadAndTxnConsumeFromLeaderTest DeleteSegmentsTest ReassignReplicaMoveAndExpandTest DynamicSegmentSizeChangeTest
ReassignToEmptyReplicaTest LocalLogStartOffsetTest TransactionsTest TransactionsExpirationTest
""".split()
RETOLD = ("test_kip405_offload.py", "test_kip405_deletion.py", "test_kip405_replicas.py", "test_transactions_pin.py")


def names_in(file: Path) -> set[str]:
    return {
        node.name
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda each: each.rpartition("/")[2][:60])
def test_every_test_the_page_names_exists(file: str, name: str) -> None:
    assert name in names_in(HERE / file)


def test_every_class_of_kafkas_has_a_row_that_names_a_test_or_says_why_not() -> None:
    rows = [line.split("|")[1:4] for line in PAGE.splitlines() if line.startswith("| `")]
    remarks = {name: here for classes, _, here in rows for name in re.findall(r"`(\w+)`", classes)}
    assert set(KAFKAS_CLASSES) == set(remarks)
    reasons = re.compile(r"::test_|not re-told: |as (the next|those) two|, below ")
    assert [name for name, here in remarks.items() if not reasons.search(here)] == []


@pytest.mark.parametrize("file", RETOLD)
def test_every_re_told_scenario_is_on_the_page(file: str) -> None:
    assert names_in(HERE / file) - {name for at, name in NAMED if at == file} == set()
