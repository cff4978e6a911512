"""What `docs/proof.md` says of the guards is what the suite takes away."""

from __future__ import annotations

from tests.histories.guards_table import PAGE, shown, table


def test_the_page_holds_the_table_of_guards_as_they_are() -> None:
    assert shown(PAGE.read_text()) == table(), "python -m tests.histories.guards_table --write"
