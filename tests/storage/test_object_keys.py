"""Names of objects: minted one way, read back whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierstate.state.errors import InvalidRequest
from tierstate.state.ids import RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.storage.segment.keys import ObjectKeys, ObjectKind, base_of, object_key

TOPIC_ID = TopicId("MWJ6FHTfRYy67jzwZdeqSQ")
SEGMENT_ID = RemoteSegmentId("tqimKeZwStOEOwRzT3L5oQ")
ZERO = "A" * 22
raw_ids = st.one_of(
    st.binary(min_size=16, max_size=16), st.just(b"\xfb" * 16), st.just(b"\xff" * 16), st.just(bytes(16))
)
topics = st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in (".", ".."))
prefixes = st.sampled_from(["", "pfx", "pfx/", "a-b/c-d/", "x/" + "A" * 22 + "/7/", "topic-" + ZERO])


@given(
    topics,
    raw_ids,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    raw_ids,
    prefixes,
    st.sampled_from(ObjectKind),
)
def test_every_minted_name_is_read_back(
    topic: str, topic_raw: bytes, partition: int, offset: int, segment_raw: bytes, prefix: str, kind: ObjectKind
) -> None:
    keys, topic_id, segment_id = ObjectKeys(prefix), TopicId.of(topic_raw), RemoteSegmentId.of(segment_raw)
    base = keys.base_key(topic, topic_id, partition, offset, segment_id)
    parsed = keys.parse(object_key(base, kind))
    assert parsed is not None
    assert (parsed.topic, parsed.partition) == (topic, TopicIdPartition(topic_id, partition))
    assert (parsed.base_offset, parsed.segment_id) == (offset, segment_id)
    assert (parsed.base_key, parsed.kind) == (base, kind)
    assert base_of(object_key(base, kind)) == base
    assert base.startswith(keys.topic_prefix(topic, topic_id))


def test_names_are_those_of_aiven() -> None:
    zero = TopicId(ZERO)
    base = ObjectKeys("prefix/").base_key("topic", zero, 7, 1234, RemoteSegmentId(ZERO))
    assert object_key(base, ObjectKind.LOG) == f"prefix/topic-{ZERO}/7/00000000000000001234-{ZERO}.log"
    base = ObjectKeys("pfx").base_key("topic", TOPIC_ID, 7, 1234, SEGMENT_ID)
    assert base == "pfxtopic-MWJ6FHTfRYy67jzwZdeqSQ/7/00000000000000001234-tqimKeZwStOEOwRzT3L5oQ"


@pytest.mark.parametrize("digits", ["٠١٢٣٤٥٦٧٨٩", "۰۱۲۳۴۵۶۷۸۹"])
def test_digits_of_a_foreign_locale_are_read(digits: str) -> None:
    offset = "00000000000000001234".translate({ord("0") + n: digit for n, digit in enumerate(digits)})
    key = f"t-{TOPIC_ID}/7/{offset}-{SEGMENT_ID}.log"
    parsed = ObjectKeys().parse(key)
    assert parsed is not None
    assert parsed.base_offset == 1234
    assert object_key(parsed.base_key, ObjectKind.LOG) == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        ".log",
        f"topic-{TOPIC_ID}/7/00000000000000001234-{SEGMENT_ID}",
        f"topic-{TOPIC_ID}/7/00000000000000001234-{SEGMENT_ID}.index",
        f"topic-{TOPIC_ID}/7/0000000000000001234-{SEGMENT_ID}.log",
        f"topic-{TOPIC_ID}/07/00000000000000001234-{SEGMENT_ID}.log",
        f"topic-{TOPIC_ID}/-1/00000000000000001234-{SEGMENT_ID}.log",
        f"topic-{TOPIC_ID}/9999999999/00000000000000001234-{SEGMENT_ID}.log",
        f"topic-{TOPIC_ID}/7/99999999999999999999-{SEGMENT_ID}.log",
        f"topic{TOPIC_ID}/7/00000000000000001234-{SEGMENT_ID}.log",
        f"-{TOPIC_ID}/7/00000000000000001234-{SEGMENT_ID}.log",
        f"other/topic-{TOPIC_ID}/7/00000000000000001234-{SEGMENT_ID}.log",
        f"topic-{'A' * 21}B/7/00000000000000001234-{SEGMENT_ID}.log",
        f"topic-{TOPIC_ID}/7/00000000000000001234-{SEGMENT_ID}\n.log",
        "_tierstate/checkpoint/12",
    ],
)
def test_what_is_no_object_of_a_segment_is_not_taken_for_one(key: str) -> None:
    assert ObjectKeys().parse(key) is None


def test_a_name_below_another_prefix_is_not_taken_for_ours() -> None:
    key = f"abctopic-{TOPIC_ID}/7/00000000000000001234-{SEGMENT_ID}.log"
    assert ObjectKeys("abc").parse(key) is not None
    assert ObjectKeys("xyz").parse(key) is None


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "grüße", "a" * 250, "a b"])
def test_a_topic_that_kafka_cannot_have_is_refused(topic: str) -> None:
    with pytest.raises(InvalidRequest):
        ObjectKeys().base_key(topic, TOPIC_ID, 0, 0, SEGMENT_ID)


@pytest.mark.parametrize("prefix", ["/", "/a/", "a//b", "../", "a/./"])
def test_a_prefix_that_no_key_can_have_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidRequest):
        ObjectKeys(prefix)
