"""Names of objects are minted one way, and read back whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierstate.state.errors import InvalidRequest
from tierstate.state.ids import RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKeys, ObjectKind, base_of, folder_of, may_be_of, object_key

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
    assert base.startswith(keys.partition_prefix(topic, topic_id, partition))
    assert folder_of(base) == keys.partition_prefix(topic, topic_id, partition)


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
def test_a_foreign_key_is_not_taken_for_a_segments_object(key: str) -> None:
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


@pytest.mark.parametrize(
    ("cluster", "topic", "partition", "salt"),
    [
        ("my-cluster", "my-topic", 0, "111"),
        ("my-cluster", "my-topic", 0, "11111100"),
        ("test-cluster-base", "test_topic_a", 0, "10101"),
        ("test-cluster", "foo123", 133, "10110"),
    ],
)
def test_the_salt_is_pinterests(cluster: str, topic: str, partition: int, salt: str) -> None:
    keys = ObjectKeys("a/{salt}/", cluster, len(salt))
    base = keys.base_key(topic, TOPIC_ID, partition, 7, SEGMENT_ID)
    assert base == f"a/{salt}/{topic}-{TOPIC_ID}/{partition}/00000000000000000007-{SEGMENT_ID}"
    parsed = keys.parse(object_key(base, ObjectKind.LOG))
    assert parsed is not None
    assert (parsed.topic, parsed.base_key) == (topic, base)


def test_a_name_under_the_salt_of_another_partition_is_not_taken_for_ours() -> None:
    keys = ObjectKeys("{salt}", "cluster", 8)
    key = object_key(keys.base_key("t", TOPIC_ID, 1, 0, SEGMENT_ID), ObjectKind.LOG)
    assert keys.parse(key) is not None
    flipped = ("1" if key[0] == "0" else "0") + key[1:]
    assert keys.parse(flipped) is None
    assert ObjectKeys("{salt}", "other cluster", 8).parse(key) is None


def test_a_salt_spreads_partitions_evenly() -> None:
    keys = ObjectKeys("{salt}/", "cluster", 3)
    salts = [keys.partition_prefix("t", TOPIC_ID, partition)[:3] for partition in range(4000)]
    assert {salts.count(each) // 100 for each in set(salts)} <= {4, 5}
    assert len(set(salts)) == 8


@pytest.mark.parametrize("bits", [0, 129])
def test_a_salt_of_no_or_too_many_bits_is_refused(bits: int) -> None:
    with pytest.raises(InvalidRequest):
        ObjectKeys("{salt}", "cluster", bits)


def test_a_key_below_any_prefix_can_be_of_its_topic_and_partition() -> None:
    key = f"some/1010/pfxa-b-{TOPIC_ID}/7/00000000000000001234-{SEGMENT_ID}.rsm-manifest"
    assert may_be_of(key, None, None)
    assert may_be_of(key, "a-b", None)
    assert may_be_of(key, "a-b", 7)
    assert may_be_of(key, "b", 7)  # the manifest has the last word
    assert not may_be_of(key, "a-b", 1)
    assert not may_be_of(key, "a", 7)


@pytest.mark.parametrize("prefix", ["{sal}/", "a{", "{{salt}}", "_tierstate/", "/"])
def test_a_prefix_that_would_be_misread_is_never_minted(prefix: str) -> None:
    with pytest.raises(InvalidRequest):
        ObjectKeys.minting(prefix, "cluster", 5)
