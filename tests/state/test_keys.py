"""Keys: minted and parsed back exactly, foreign texts refused, the mapping to tier-state partitions published."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import InvalidRequest
from tierstate.state.facts import (
    ContradictionSettled,
    DeleteReason,
    Fact,
    GapAccepted,
    IntegrityHold,
    LeaderElected,
    LineageSettled,
    LocalTrimIntended,
    LogStartAdvanced,
    OperatorOrder,
    OrderKind,
    PartitionDeleted,
    PartitionMissing,
    ReaderLease,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
    TopicMeta,
)
from tierstate.state.ids import BrokerId, FactId, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.keys import (
    TOPIC_META_KEY,
    KeyKind,
    ParsedKey,
    key_of,
    murmur2,
    parse_key,
    partition_of_key,
    partition_prefix,
    tier_partition_of,
)
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.segment import Term

if TYPE_CHECKING:
    from tests.state.conftest import Build

# Every 16 bytes are an id: those that print with "-", "_" or as "AAAA…" included.
RAW = st.binary(min_size=16, max_size=16) | st.sampled_from([b"\xff" * 16, b"\x00" * 16, b"\xfb\xef\xbe" * 5 + b"\xfb"])
EPOCHS = st.integers(0, 2**31 - 1)
NUMBERS = st.integers(0, 2**63 - 1)
AT = TimestampMs(5)


@st.composite
def cases(draw: st.DrawFn, build: Build) -> tuple[Fact, ParsedKey]:
    """Draw a fact of any kind that names a partition, and the parts that its key must have."""
    tip = TopicIdPartition(TopicId.of(draw(RAW)), draw(EPOCHS))
    epoch, position, counter = draw(EPOCHS), draw(NUMBERS), draw(NUMBERS)
    number, sid = FactId.of(draw(RAW)), RemoteSegmentId.of(draw(RAW))
    term = Term(LeaderEpoch(epoch), Position(position), number)
    attempt = replace(build.attempt(1, term), partition=tip, segment_id=sid)
    segment = replace(build.segment(1, term), partition=tip, segment_id=sid)
    zero, where = Offset(0), OffsetRange(Offset(0), Offset(1))
    three = (epoch, position, counter)
    broker = BrokerId(1)
    table: list[tuple[Fact, ParsedKey]] = [
        (
            LeaderElected(tip, "t", term.epoch, number, broker, "a", Lineage(), zero, AT),
            ParsedKey(tip, KeyKind.LEADER, None, (epoch,), number),
        ),
        (SegmentCopyStarted(attempt), ParsedKey(tip, KeyKind.COPY_STARTED, sid)),
        (SegmentCopyFinished(segment), ParsedKey(tip, KeyKind.COPY_FINISHED, sid)),
        (
            SegmentDeleteStarted(attempt, term, counter, DeleteReason.ABANDONED, AT),
            ParsedKey(tip, KeyKind.DELETE_STARTED, sid, three),
        ),
        (SegmentDeleteFinished(segment, term, counter, AT), ParsedKey(tip, KeyKind.DELETE_FINISHED, sid, three)),
        (LogStartAdvanced(tip, zero, term, counter, "r", AT), ParsedKey(tip, KeyKind.LOG_START, None, three)),
        (LocalTrimIntended(tip, zero, term, counter, AT), ParsedKey(tip, KeyKind.TRIM, None, three)),
        (
            OperatorOrder(tip, number, OrderKind.PAUSE, None, False, "me", AT),
            ParsedKey(tip, KeyKind.ORDER, id=number),
        ),
        (ReaderLease(tip, number, where, "h", AT), ParsedKey(tip, KeyKind.LEASE, id=number)),
        (IntegrityHold(tip, number, broker, "r", "1", "2", AT), ParsedKey(tip, KeyKind.HOLD, id=number)),
        (LineageSettled(tip, number, Lineage(), "me", AT), ParsedKey(tip, KeyKind.LINEAGE, id=number)),
        (ContradictionSettled(tip, number, "r", False, "me", AT), ParsedKey(tip, KeyKind.SETTLED, id=number)),
        (GapAccepted(tip, number, where, Lineage(), "r", "me", AT), ParsedKey(tip, KeyKind.GAP, id=number)),
        (PartitionMissing(tip, number, "c", broker, AT), ParsedKey(tip, KeyKind.MISSING, id=number)),
        (PartitionDeleted(tip, term, AT), ParsedKey(tip, KeyKind.DELETED, None, (epoch, position))),
    ]
    assert {parsed.kind for _, parsed in table} == set(KeyKind) - {KeyKind.LATER}
    return draw(st.sampled_from(table))


@given(data=st.data())
def test_a_key_parses_back_to_the_fields_of_its_fact(data: st.DataObject, build: Build) -> None:
    fact, expected = data.draw(cases(build))
    key = key_of(fact)
    assert parse_key(key) == expected
    assert partition_of_key(key) == expected.partition
    assert key.encode().decode("ascii") == key


def test_the_topics_own_fact_stands_under_a_key_without_partition() -> None:
    assert key_of(TopicMeta(50, "c", AT)) == TOPIC_META_KEY
    assert parse_key(TOPIC_META_KEY) is None
    assert partition_of_key(TOPIC_META_KEY) is None


@given(raw=RAW, word=st.from_regex("[a-z]{1,9}(-[a-z]{1,9})?", fullmatch=True))
def test_a_word_of_a_later_release_still_names_its_partition(raw: bytes, word: str) -> None:
    tip = TopicIdPartition(TopicId.of(raw), 3)
    assume(word not in {kind.value for kind in KeyKind} | {"segment"})
    assert parse_key(f"{partition_prefix(tip)}{word}/{T}") == ParsedKey(tip, KeyKind.LATER, id=FactId(T))


T = "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize(
    "tail",
    [
        "leader/1",
        f"leader/1/{T}/x",
        f"leader/{T}",
        f"Later/{T}",
        f"later-/{T}",
        f"later/{T}/1",
        "later/1",
        f"leader/{2**31}/{T}",
        f"leader/01/{T}",
        f"leader/-1/{T}",
        f"leader/+1/{T}",
        f"leader/ 1/{T}",
        f"leader/1_0/{T}",
        f"leader/٣/{T}",  # digits of another script
        f"leader/²/{T}",  # a digit to isdigit, not to int
        f"leader//{T}",
        f"leader/1/{T[:-1]}",
        f"leader/1/{T[:-1]}B",  # bits beyond the 16 bytes
        f"leader/1/{T[:-1]}+",
        f"leader/1/{T[:-1]}=",
        f"segment/{T}",
        f"segment/{T}/copy-started/1",
        f"segment/{T}/copy-begun",
        f"segment/{T}/delete-started",
        f"segment/{T}/delete-started/1/2",
        f"segment/{T}/delete-started/1/2/3/4",
        f"segment/{T}/delete-finished/1/2/{2**63}",
        f"segment/{T}/delete-finished/1/2/{10**19}",
        f"segment/{T}/Delete-Finished/1/2/3",
        "log-start/1/2",
        f"trim/{2**31}/2/3",
        "order/x",
        f"order/{T}/",
        "deleted/1",
        "deleted/1/2/3",
        "",
        "meta/topic",
    ],
)
def test_a_foreign_tail_is_refused(tail: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_key(f"{T}/0/{tail}")


@pytest.mark.parametrize(
    "key",
    ["", "/", "meta", "meta/topics", "Meta/topic", "a/b/c", f"{T}", f"{T}/", f"{T}/x/order/{T}", f"{T}/-1/order/{T}",
     f"{T}/00/order/{T}", f"{T}/{2**31}/order/{T}", f"{T}x/0/order/{T}", f"/{T}/0/order/{T}", f" {T}/0/order/{T}"],
)  # fmt: skip
def test_a_key_without_a_partition_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_key(key)
    with pytest.raises(InvalidRequest):
        partition_of_key(key)


@given(st.text() | st.lists(st.sampled_from([T, "0", "leader", "segment", "trim", "1", "", "é"])).map("/".join))
def test_any_text_is_parsed_or_refused_and_nothing_else(text: str) -> None:
    try:
        parsed = parse_key(text)
    except InvalidRequest:
        return
    assert parsed is None or text.startswith(f"{parsed.partition.topic_id}/{parsed.partition.partition}/")


@pytest.mark.parametrize(
    ("epoch", "position", "counter"), [(-1, 0, 0), (2**31, 0, 0), (0, -1, 0), (0, 2**63, 0), (0, 0, -1), (0, 0, 2**63)]
)
def test_a_key_that_would_not_parse_is_never_minted(epoch: int, position: int, counter: int, build: Build) -> None:
    with pytest.raises(InvalidRequest):
        build.log_start(1, build.term(epoch, position, 1), 0, counter)


@pytest.mark.parametrize(
    ("text", "hashed"),  # org.apache.kafka.common.utils.UtilsTest.testMurmur2
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(text: str, hashed: int) -> None:
    assert murmur2(text.encode()) == hashed % 2**32


@pytest.mark.parametrize(
    ("topic_id", "partition", "of_50", "of_7"),
    [
        ("AAAAAAAAAAAAAAAAAAAAAA", 0, 20, 0),
        ("AAAAAAAAAAAAAAAAAAAAAA", 1, 14, 4),
        ("_____________________w", 0, 29, 6),
        ("EjRWeJCrze8SNFZ4kKvN7w", 256, 5, 2),
    ],
)
def test_the_mapping_to_tier_state_partitions_never_changes(
    topic_id: str, partition: int, of_50: int, of_7: int
) -> None:
    tip = TopicIdPartition(TopicId(topic_id), partition)
    assert (tier_partition_of(tip, 50), tier_partition_of(tip, 7)) == (of_50, of_7)
