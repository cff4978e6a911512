"""Generates `docs/reasons.md` from `reasons.py`: ``python -m tierstate.rules.reasons_page > docs/reasons.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from .reasons import MEANINGS, Reason

INTRODUCTION = """\
# Why something is not done

`tierstate describe` and `/v1/status/TOPIC/PARTITION` show in one sentence why the next segment is not copied
(`not_copied`), why local space is not freed (`not_trimmed`), and why nothing is deleted from the remote tier
(`not_expired`). Each sentence has a kind (`not_copied_reason` …), one of the names below, which do not change. The
metrics `tierstate_partitions_not_copied`, `tierstate_partitions_not_trimmed` and `tierstate_refused_partitions` count
partitions by kind.

This page is made from `rules/reasons.py` (`python -m tierstate.rules.reasons_page`); do not edit it.

| kind (prevents) | meaning | what you can do |
|---|---|---|
"""


def reasons_page() -> str:
    """Return the whole page with one line for each kind, in the order of `Reason`."""
    return INTRODUCTION + "".join(_lines())


def _lines() -> Iterator[str]:
    for kind in Reason:
        meaning = MEANINGS[kind]
        yield f"| `{kind.value}` ({meaning.acts}) | {meaning.meaning} | {meaning.can_do} |\n"


if __name__ == "__main__":
    sys.stdout.write(reasons_page())
