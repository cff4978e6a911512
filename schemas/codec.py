"""Convert facts and descriptors to bytes and back (Avro single-object encoding), and to JSON and back."""

from __future__ import annotations

from typing import Any

from ..state import facts
from ..state.errors import CorruptData, InvalidRequest
from ..state.facts import Fact, UnknownFact
from ..state.keys import key_of
from ..state.segment import CopyAttempt, RemoteSegment
from .records import from_record, to_record
from .registry import UnknownFingerprint, decode_record, encode_record, name_of, newest

RELEASE = "0.1.0"
"""The version in ``pyproject.toml``; a test compares them. A constant works where the package is not installed, too."""
MAX_FACT_BYTES = 64 * 1024
"""Maximum size of an encoded fact. A larger one is rejected before it is sent, so the error is InvalidRequest."""

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        facts.TopicMeta,
        facts.LeaderElected,
        facts.SegmentCopyStarted,
        facts.SegmentCopyFinished,
        facts.SegmentDeleteStarted,
        facts.SegmentDeleteFinished,
        facts.LogStartAdvanced,
        facts.LocalTrimIntended,
        facts.OperatorOrder,
        facts.ReaderLease,
        facts.IntegrityHold,
        facts.LineageSettled,
        facts.ContradictionSettled,
        facts.GapAccepted,
        facts.PartitionMissing,
        facts.PartitionDeleted,
    )
}

ADDED: dict[str, dict[str, Any]] = {
    "tierstate.v1.LogStartAdvanced": {"lineage": []},
    "tierstate.v1.OperatorOrder": {"lineage": []},
}
"""By the full name of an older schema: the values of fields that its records do not have."""


LATER_FACT = "tierstate.v1.LaterFact"

ENVELOPES: dict[str, tuple[str, str | None]] = {}
"""Schemas that release 0.1.0 does not have, by full name: the first release that reads the schema, and the oldest
release that may ignore its facts (None: no release). Such a fact is wrapped in a `LaterFact`, which every release can
read. So a release without the schema knows whether it may ignore the fact."""


def in_envelope(value: bytes, written_by: str, ignorable_since: str | None) -> bytes:
    """Return the encoded fact wrapped in a `LaterFact`."""
    record = {"written_by": written_by, "ignorable_since": ignorable_since, "fact": value}
    return encode_record(LATER_FACT, record)


def encode_fact(fact: Fact) -> bytes:
    """Return the record value of a fact. Raises InvalidRequest if it exceeds `MAX_FACT_BYTES` or fits no schema."""
    record = to_record(fact)
    if isinstance(fact, facts.SegmentDeleteStarted | facts.SegmentDeleteFinished):
        record["subject"] = (newest(type(fact.subject).__name__), record["subject"])
    key = key_of(fact)
    try:
        name = newest(type(fact).__name__)
        value = encode_record(name, record)
        if name in ENVELOPES:
            value = in_envelope(value, *ENVELOPES[name])
    except Exception as error:  # fastavro: ValidationError, OverflowError, UnicodeEncodeError, …
        reason = f"{type(error).__name__}: {error}"
        raise InvalidRequest("fact does not fit its schema", key=key, reason=reason) from error
    if len(value) > MAX_FACT_BYTES:
        raise InvalidRequest("fact is too large", key=key, bytes=len(value), limit=MAX_FACT_BYTES)
    return value


def decode_fact(key: str, value: bytes) -> Fact | UnknownFact:
    """Return the fact under this key, whichever release wrote it.

    Never raises. Returns an UnknownFact with the reason if this release cannot read the value, or if the value belongs
    to another key.
    """
    envelope: dict[str, Any] | None = None
    try:
        name, record = decode_record(value)
        if name == LATER_FACT:
            envelope = record
            name, record = decode_record(envelope["fact"])
        kind = KINDS.get(name.rpartition(".")[2])
        if kind is None:
            return UnknownFact(key, f"not a fact: {name}")
        if name in ADDED:
            record.update(ADDED[name])
        fact: Fact = from_record(kind, record)
        minted = key_of(fact)
    except UnknownFingerprint as error:
        return _of_later_release(key, f"unknown schema fingerprint {error.args[0]}", envelope)
    except Exception as error:  # fastavro may raise any error for damaged bytes
        return UnknownFact(key, f"unreadable value: {type(error).__name__}: {error}")
    return fact if minted == key else UnknownFact(key, f"the value is of another key, {minted}")


def _of_later_release(key: str, reason: str, envelope: dict[str, Any] | None) -> UnknownFact:
    if envelope is None:
        return UnknownFact(key, f"{reason}: a later release wrote it, upgrade this process", later=True)
    reason = f"{reason}: release {envelope['written_by']} or later wrote it, upgrade this process"
    since = envelope["ignorable_since"]
    try:
        ignorable = since is not None and _numbers(RELEASE) >= _numbers(since)
    except ValueError:
        ignorable = False
    return UnknownFact(key, reason, later=True, ignorable=ignorable)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def may_be_later(value: bytes) -> bool:
    """Return whether a later release may have written the value: then call `decode_fact`. Fast, for complete topics."""
    name = name_of(value)
    return name is None or name == LATER_FACT


def fact_to_json(fact: Fact | UnknownFact) -> dict[str, Any]:
    """Return ``{"fact": "SegmentCopyFinished", …}``, with bytes as hex."""
    return {"fact": type(fact).__name__, **to_record(fact, json=True)}


def descriptor_to_json(segment: RemoteSegment | CopyAttempt) -> dict[str, Any]:
    """Return the descriptor in the form of the manifest, the gateway's answers and the command line."""
    record: dict[str, Any] = to_record(segment, json=True)
    return record


def descriptor_from_json(record: Any, *, source: str) -> RemoteSegment:
    """Return the descriptor of a finished copy. Raises CorruptData naming ``source``."""
    try:
        return from_record(RemoteSegment, record, json=True)
    except InvalidRequest as error:
        raise CorruptData("segment descriptor cannot be read", file=source, reason=str(error)) from error
