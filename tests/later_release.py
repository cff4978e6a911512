"""Facts as a later release would write them: versions and kinds for which this release has no schema."""

from __future__ import annotations

from tierstate.schemas.codec import encode_fact, in_envelope
from tierstate.state.facts import Fact
from tierstate.state.ids import FactId, TopicIdPartition
from tierstate.state.keys import partition_prefix

LATER = "7.1.0"
"""The first release that reads these facts."""
_UNKNOWN = b"\xc3\x01" + b"\x77" * 8


def later_version(fact: Fact) -> bytes:
    """Return the fact in a version that is not known yet, as a later release writes it."""
    return in_envelope(_UNKNOWN + encode_fact(fact)[10:], LATER, None)


def later_kind(partition: TopicIdPartition, number: int, ignorable_since: str | None = None) -> tuple[str, bytes]:
    """Return key and value of a fact of a kind that is not known yet."""
    key = f"{partition_prefix(partition)}omen/{FactId.of(number.to_bytes(16, 'big'))}"
    return key, in_envelope(_UNKNOWN + b"portent", LATER, ignorable_since)
