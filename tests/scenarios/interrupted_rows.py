"""Every irreversible step of a leader, as a row: the agent is stopped before it.

The steps are read from the operations' own source, so that a new one without a row here fails a test.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import tierstate.leader

Point = tuple[str, str]
"""File of `leader/` and the name of a step."""

NOT_A_LEADERS = {"custody.py", "recover.py"}
"""Operations of the custodian, and of the recovery by an admin."""
ELSEWHERE = {
    ("sweeper.py", "abort upload"): "tests/leader/test_orphan_uploads.py: a folder has no uploads of several parts",
    ("integrity.py", "append hold"): "tests/leader/test_integrity.py: only a person ends what a hold begins",
}


@dataclass(frozen=True)
class Row:
    """Stop before the ``nth`` step of this name that this file takes, in a partition of the topic ``stage``."""

    stage: str
    file: str
    step: str
    nth: int = 1

    @property
    def point(self) -> Point:
        return self.file, self.step

    def __str__(self) -> str:
        return f"{self.stage}: {self.file}: {self.step} ({self.nth})"


COPIED = [
    Row("copied", "term.py", "append leader-elected"),
    Row("copied", "term.py", "append log-start"),
    *(
        Row("copied", file, step, nth)
        for nth in (1, 2)
        for file, step in (
            ("copier.py", "append copy-started"),
            ("copier.py", "put log"),
            ("copier.py", "put indexes"),
            ("copier.py", "put manifest"),
            ("copier.py", "append copy-finished"),
        )
    ),
    Row("copied", "trimmer.py", "append trim-intended"),
    Row("copied", "trimmer.py", "delete-records"),
]
FAILED = [
    Row("failed", "copier.py", "delete own objects"),
    Row("failed", "copier.py", "append delete-started"),
    Row("failed", "copier.py", "append delete-finished"),
]
EXPIRED = [
    Row("expired", "expirer.py", "append log-start"),
    *(
        Row("expired", file, step, nth)
        for nth in (1, 2)
        for file, step in (
            ("expirer.py", "append delete-started"),
            ("expirer.py", "delete objects"),
            ("expirer.py", "append delete-finished"),
            ("expirer.py", "append tombstone"),
        )
    ),
]
ORDERED = [Row("ordered", "expirer.py", "append log-start"), Row("ordered", "expirer.py", "delete-records")]
SWEPT = [
    Row("swept", "expirer.py", "append delete-started"),
    Row("swept", "expirer.py", "delete objects"),
    Row("swept", "expirer.py", "append delete-finished"),
    Row("swept", "sweeper.py", "delete orphan"),
]
ROWS = [*COPIED, *FAILED, *EXPIRED, *ORDERED, *SWEPT]


def steps_in_source() -> set[Point]:
    """Return every step that an operation of a leader yields, by its source."""
    points: set[Point] = set()
    for path in Path(next(iter(tierstate.leader.__path__))).glob("*.py"):
        acts = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.FunctionDef)]
        for act in acts if path.name not in NOT_A_LEADERS else ():
            if act.returns is None or not ast.unparse(act.returns).startswith("Operation["):
                continue
            for node in ast.walk(act):
                if isinstance(node, ast.Yield) and node.value is not None:
                    texts = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
                    assert texts, f"a step without a name in its source: {path.name}:{node.lineno}"
                    points |= {(path.name, str(text)) for text in texts}
    return points
