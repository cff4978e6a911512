"""Every block of the pages for the first day is executed by a test, or says why not."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from tests.docs.blocks import PAGES, ROOT, Block, blocks_of

EVERY = [block for page in PAGES for block in blocks_of(page)]


@pytest.mark.parametrize("block", EVERY, ids=str)
def test_a_block_is_executed_or_says_why_not(block: Block) -> None:
    assert block.kind != "indented", f"{block}: fence it, and mark it"
    assert block.test or block.reason, f"{block}: put one of the comments of tests/docs/blocks.py above it"


@pytest.mark.parametrize("block", [block for block in EVERY if block.test], ids=str)
def test_the_test_that_executes_a_block_takes_it_from_its_page(block: Block) -> None:
    """`tests/test_docs.py` loads every block of settings, whatever the page."""
    text = (ROOT / str(block.test)).read_text()
    if block.test == "tests/test_docs.py":
        assert block.kind == "toml"
        assert "load_settings(file" in text
    else:
        assert f'executed("{block.page}", __file__)' in text


def test_every_page_has_blocks_that_are_executed() -> None:
    assert all(Counter(block.page for block in EVERY if block.test)[page] for page in PAGES)


def test_one_command_lists_the_blocks_that_are_not_executed() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.docs.blocks"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    left = [block for block in EVERY if block.reason]
    for block in left:
        assert f"{block}  {block.reason}\n" in done.stdout
    assert done.stdout.endswith(f"{len(left)} of {len(EVERY)} blocks are not executed\n")
