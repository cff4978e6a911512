"""Every reason has a scenario on a real broker that produces it, and a line in the docs."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.scenarios import (
    test_copy_of_the_cluster,
    test_migrate,
    test_reasons,
    test_reasons_of_failures,
    test_wrong_clock,
)
from tests.scenarios.reasons_world import SHOWN
from tierstate.rules.decide import OperationKind
from tierstate.rules.reasons import Reason

MODULES = [test_copy_of_the_cluster, test_migrate, test_reasons, test_reasons_of_failures, test_wrong_clock]
ELSEWHERE = {Reason.LINEAGE_TOO_LONG}
"""Only after thousands of elections, which no broker makes in a minute: `tests/leader/test_terms.py`."""


def test_every_reason_is_produced_by_a_scenario_on_a_real_broker_and_no_other() -> None:
    missing = set(Reason) - SHOWN.keys() - ELSEWHERE
    assert not missing, f"no scenario declares {sorted(missing)}"


@pytest.mark.parametrize("module", MODULES, ids=lambda each: each.__name__)
def test_a_scenario_asserts_every_reason_that_it_declares(module: ModuleType) -> None:
    """A declaration alone shows nothing: the body must name the reason too."""
    tree = ast.parse(Path(module.__file__ or "").read_text())
    for scenario in (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.decorator_list):
        declared = {name for mark in scenario.decorator_list for name in reasons_in(mark)}
        asserted = {name for statement in scenario.body for name in reasons_in(statement)}
        assert declared <= asserted, (scenario.name, declared - asserted)


def reasons_in(tree: ast.AST) -> set[str]:
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason"
    }


def test_the_page_of_reasons_explains_each_reason_once() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reasons.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \(([a-z, ]+)\) \| (.+) \| (.+) \|$", page, re.M)
    assert [kind for kind, *_ in rows] == [kind.value for kind in Reason]
    assert {step for _, steps, *_ in rows for step in steps.split(", ")} <= {each.value for each in OperationKind}
