"""Facts as bytes: golden for ever, round trips, and damage that never decodes to another fact."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierstate.schemas.codec import (
    KINDS,
    MAX_FACT_BYTES,
    RELEASE,
    decode_fact,
    descriptor_from_json,
    descriptor_to_json,
    encode_fact,
    fact_to_json,
    in_envelope,
)
from tierstate.schemas.records import from_record
from tierstate.schemas.registry import encode_record
from tierstate.state import facts as said
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.facts import Fact, UnknownFact
from tierstate.state.ids import FactId
from tierstate.state.keys import key_of, partition_prefix
from tierstate.state.offsets import Offset, Position
from tierstate.state.segment import RemoteSegment

GOLDEN = Path(__file__).parent.parent / "data" / "schemas"


def test_every_kind_of_fact_has_a_codec_and_a_sample(samples: dict[str, Fact]) -> None:
    kinds = set(get_args(said.Fact))
    assert set(KINDS.values()) == kinds
    assert {type(fact) for fact in samples.values()} == kinds


def test_version_1_bytes_are_readable_for_ever(samples: dict[str, Fact]) -> None:
    for name, golden in json.loads((GOLDEN / "v1.json").read_text()).items():
        assert decode_fact(golden["key"], bytes.fromhex(golden["value"])) == samples[name], name


def test_facts_are_written_as_version_2(samples: dict[str, Fact]) -> None:
    # A new version gets its own golden file; this test then moves to it, one like the above stays.
    golden = json.loads((GOLDEN / "v2.json").read_text())
    assert set(golden) == set(samples)
    for name, fact in samples.items():
        assert (key_of(fact), encode_fact(fact).hex()) == (golden[name]["key"], golden[name]["value"]), name


def fact_from_json(record: dict[str, Any]) -> Fact:
    fact: Fact = from_record(KINDS[record["fact"]], record, json=True)
    return fact


@given(data=st.data())
def test_any_fact_survives_its_bytes_and_its_json(data: st.DataObject, any_fact: st.SearchStrategy[Fact]) -> None:
    fact = data.draw(any_fact)
    again = decode_fact(key_of(fact), encode_fact(fact))
    assert again == fact
    assert type(again) is type(fact)
    printed = json.loads(json.dumps(fact_to_json(fact)))
    assert fact_from_json(printed) == fact
    assert printed["fact"] == type(fact).__name__


@given(data=st.data())
def test_any_descriptor_survives_its_json(
    data: st.DataObject, any_of: Callable[[Any], st.SearchStrategy[RemoteSegment]]
) -> None:
    segment = data.draw(any_of(RemoteSegment))
    assert descriptor_from_json(json.loads(json.dumps(descriptor_to_json(segment))), source="m") == segment


def test_json_prints_bytes_as_lower_case_hex(samples: dict[str, Fact]) -> None:
    assert fact_to_json(samples["SegmentCopyFinished"])["segment"]["log_sha256"] == bytes(range(32)).hex()


def test_an_unknown_fingerprint_is_an_unknown_fact_that_names_it(samples: dict[str, Fact]) -> None:
    fact = samples["LogStartAdvanced"]
    value = encode_fact(fact)
    decoded_fact = decode_fact(key_of(fact), value[:2] + b"\x00" * 8 + value[10:])
    assert isinstance(decoded_fact, UnknownFact)
    assert "unknown schema fingerprint 0000000000000000" in decoded_fact.reason
    assert (decoded_fact.later, decoded_fact.ignorable) == (True, False)


@pytest.mark.parametrize(
    ("since", "ignorable"), [(None, False), ("9.0.0", False), ("nonsense", False), (RELEASE, True), ("0.0.9", True)]
)
def test_a_later_release_says_which_releases_may_ignore_its_fact(
    since: str | None, ignorable: bool, samples: dict[str, Fact]
) -> None:
    fact = samples["LineageSettled"]
    assert isinstance(fact, said.LineageSettled)
    unknown = b"\xc3\x01" + b"\x00" * 8 + encode_fact(fact)[10:]
    key = f"{partition_prefix(fact.partition)}omen/{FactId.of(bytes(16))}"
    decoded_fact = decode_fact(key, in_envelope(unknown, "7.1.0", since))
    assert isinstance(decoded_fact, UnknownFact)
    assert "release 7.1.0 or later" in decoded_fact.reason
    assert (decoded_fact.later, decoded_fact.ignorable) == (True, ignorable)


def test_a_fact_in_an_envelope_is_the_fact(samples: dict[str, Fact]) -> None:
    for fact in samples.values():
        assert decode_fact(key_of(fact), in_envelope(encode_fact(fact), "7.1.0", None)) == fact


def test_an_envelope_in_an_envelope_is_no_fact(samples: dict[str, Fact]) -> None:
    fact = samples["LineageSettled"]
    decoded_fact = decode_fact(key_of(fact), in_envelope(in_envelope(encode_fact(fact), "7.1.0", None), "7.1.0", None))
    assert isinstance(decoded_fact, UnknownFact)
    assert not decoded_fact.later


def test_the_release_that_facts_are_compared_with_is_the_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == RELEASE


def test_a_record_that_is_no_fact_is_an_unknown_fact(samples: dict[str, Fact]) -> None:
    value = encode_record("tierstate.v1.EpochEntry", {"epoch": 1, "start_offset": 2})
    decoded_fact = decode_fact("meta/topic", value)
    assert isinstance(decoded_fact, UnknownFact)
    assert "EpochEntry" in decoded_fact.reason


def test_a_value_under_another_facts_key_is_an_unknown_fact(samples: dict[str, Fact]) -> None:
    keys = {key_of(fact) for fact in samples.values()}
    for fact in samples.values():
        for key in keys - {key_of(fact)}:
            decoded_fact = decode_fact(key, encode_fact(fact))
            assert isinstance(decoded_fact, UnknownFact)
            assert decoded_fact.key == key


def test_truncated_or_lengthened_values_are_unknown_facts(samples: dict[str, Fact]) -> None:
    for name, fact in samples.items():
        value = encode_fact(fact)
        for cut in range(len(value)):
            assert isinstance(decode_fact(key_of(fact), value[:cut]), UnknownFact), (name, cut)
        assert isinstance(decode_fact(key_of(fact), value + b"\x00"), UnknownFact), name


def test_a_flipped_bit_never_moves_a_fact_to_another_kind_key_or_term_in_the_key(samples: dict[str, Fact]) -> None:
    """The promise is an UnknownFact, or a fact of the same kind under the same key, hence of the same partition,
    segment and numbers. Avro has no checksum, so a flip inside any other value (a size, a time, the term of a copy) can
    yield another valid value: Kafka's batch CRC-32C guards those.
    Every flip in the ten bytes in front of the value is seen.
    """
    for name, fact in samples.items():
        value, key = encode_fact(fact), key_of(fact)
        for bit in range(len(value) * 8):
            flipped = bytearray(value)
            flipped[bit // 8] ^= 1 << bit % 8
            other = decode_fact(key, bytes(flipped))
            assert isinstance(other, UnknownFact) or (type(other) is type(fact) and key_of(other) == key), (name, bit)
            assert bit >= 80 or isinstance(other, UnknownFact), (name, bit)


@given(body=st.binary(max_size=200), which=st.integers(0, 19), headed=st.booleans())
def test_any_bytes_decode_to_something(body: bytes, which: int, headed: bool, samples: dict[str, Fact]) -> None:
    fact = list(samples.values())[which]
    value = encode_fact(fact)[:10] + body if headed else body
    decoded_fact = decode_fact(key_of(fact), value)
    assert isinstance(decoded_fact, UnknownFact) or key_of(decoded_fact) == key_of(fact)


@pytest.mark.parametrize("key", ["", "meta/topic", "x/y/z", "\ud800"])
def test_a_foreign_key_makes_any_value_unknown(key: str, samples: dict[str, Fact]) -> None:
    assert isinstance(decode_fact(key, encode_fact(samples["LeaderElected"])), UnknownFact)


def hold(samples: dict[str, Fact], quoted: str) -> said.IntegrityHold:
    fact = samples["IntegrityHold"]
    assert isinstance(fact, said.IntegrityHold)
    return replace(fact, first=quoted)


def test_a_fact_of_64_kib_is_the_largest(samples: dict[str, Fact]) -> None:
    room = MAX_FACT_BYTES - len(encode_fact(hold(samples, "x" * 60_000))) + 60_000
    assert len(encode_fact(hold(samples, "x" * room))) == MAX_FACT_BYTES == 65_536
    with pytest.raises(InvalidRequest, match="fact is too large") as error:
        encode_fact(hold(samples, "x" * (room + 1)))
    assert error.value.facts["bytes"] == MAX_FACT_BYTES + 1


def test_values_that_no_schema_holds_are_refused_before_sending(samples: dict[str, Fact]) -> None:
    trim, meta = samples["LocalTrimIntended"], samples["TopicMeta"]
    assert isinstance(trim, said.LocalTrimIntended)
    assert isinstance(meta, said.TopicMeta)
    not_typed: dict[str, Any] = {"partitions": 1.5}
    nothing: dict[str, Any] = {"cluster_id": None}
    broken: list[Fact] = [
        hold(samples, "\ud800"),
        replace(trim, offset=Offset(2**63)),
        replace(meta, partitions=2**31),
        replace(meta, **not_typed),
        replace(meta, partitions=True),
        replace(meta, **nothing),
        replace(trim, counter=-1),
    ]
    for fact in broken:
        with pytest.raises(InvalidRequest):
            encode_fact(fact)


@pytest.mark.parametrize(
    "change",
    [
        {"partition": {"topic_id": "x", "partition": 0}},
        {"partition": None},
        {"partition": [1]},
        {"id": FactId("AAAAAAAAAAAAAAAAAAAAAQ").raw},
        {"kind": "explode"},
        {"before": "7"},
        {"before": True},
        {"force": 1},
        {"at": 1.0},
    ],
)
def test_json_of_another_shape_is_refused(change: dict[str, Any], samples: dict[str, Fact]) -> None:
    record = fact_to_json(samples["OperatorOrder"])
    with pytest.raises(InvalidRequest):
        fact_from_json({**record, **change})


def test_json_without_a_field_is_refused(samples: dict[str, Fact]) -> None:
    for fact in samples.values():
        record = fact_to_json(fact)
        for name in record.keys() - {"fact"}:
            with pytest.raises(InvalidRequest):
                fact_from_json({key: value for key, value in record.items() if key != name})


@pytest.mark.parametrize("record", [None, [], "x", {}, {"partition": 1}])
def test_a_broken_descriptor_is_corrupt_data_that_names_its_source(record: Any) -> None:
    with pytest.raises(CorruptData) as error:
        descriptor_from_json(record, source="orders/1.manifest")
    assert error.value.facts["file"] == "orders/1.manifest"


def test_facts_of_one_term_share_the_term_and_the_partition(samples: dict[str, Fact]) -> None:
    fact = samples["LogStartAdvanced"]
    assert isinstance(fact, said.LogStartAdvanced)
    key, value = key_of(fact), encode_fact(fact)
    one, other = decode_fact(key, value), decode_fact(key, bytes(value))
    assert isinstance(one, said.LogStartAdvanced)
    assert isinstance(other, said.LogStartAdvanced)
    assert one.term is other.term
    assert one.partition is other.partition


@pytest.mark.parametrize(("name", "wrong"), [("epoch", True), ("epoch", 1.0), ("position", "7"), ("id", 7)])
def test_shared_values_are_checked_like_all_others(samples: dict[str, Fact], name: str, wrong: object) -> None:
    fact = replace_term(samples["LogStartAdvanced"])
    printed = fact_to_json(fact)
    assert fact_from_json(printed) == fact  # the right one is remembered: 1 == True == 1.0
    printed["term"][name] = wrong
    with pytest.raises(InvalidRequest):
        fact_from_json(printed)


def replace_term(fact: Fact) -> Fact:
    assert isinstance(fact, said.LogStartAdvanced)
    return replace(fact, term=replace(fact.term, epoch=LeaderEpoch(1), position=Position(7)))
