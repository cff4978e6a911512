"""`docs/proxy.md` has every request that passes, as the code has it."""

from __future__ import annotations

from tests.docs.generated import shown
from tests.docs.proxy_page import PAGE, parts


def test_the_table_of_requests_is_the_codes() -> None:
    page = PAGE.read_text()
    assert {name: shown(page, name) for name in parts()} == parts(), "python -m tests.docs.proxy_page --write"
