"""`guards.md` lists the guards that the tests remove."""

from __future__ import annotations

from tests.histories.guards_table import PAGE, page


def test_the_page_holds_the_table_of_guards_as_they_are() -> None:
    assert PAGE.read_text() == page(), "python -m tests.histories.guards_table > tests/histories/guards.md"
