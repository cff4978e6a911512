"""`--json` and HTTP use one word for one thing, Kafka's where it has one (`vocabulary.py`, docs/formats.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.vocabulary import (
    ELSEWHERE,
    PRINTED,
    WORDS,
    fields_of_printed,
    keys_of_commands,
    keys_of_errors,
    keys_of_http,
)
from tierstate.api import models

FORMATS = Path(__file__).resolve().parents[1] / "docs" / "formats.md"
INSTEAD = {banned: word for word, synonyms in WORDS.items() for banned in synonyms}

HTTP_ALONE = {"remote_log_bytes", "copied_to", "local_only_records", "overlap", "leases", "unavailable", "facts_lost"}
"""Keys of a partition that the gateway has and `describe` lacks: it shows the agent's own; see `tierstate leases`."""


@pytest.mark.parametrize("keys", [keys_of_commands, keys_of_http])
def test_no_key_has_another_word_for_what_has_one(keys: object) -> None:
    assert callable(keys)
    assert {key: INSTEAD[key] for key in keys() & INSTEAD.keys()} == {}


def test_the_facts_of_errors_use_the_same_words() -> None:
    keys = keys_of_errors()
    assert {key: INSTEAD[key] for key in keys & (INSTEAD.keys() - ELSEWHERE)} == {}
    assert keys >= ELSEWHERE.keys(), "no error says it any more: take it off the list"


def test_each_word_of_the_list_is_used_and_is_no_synonym_of_another() -> None:
    keys = keys_of_commands() | keys_of_http()
    assert WORDS.keys() - keys == set()
    assert WORDS.keys() & INSTEAD.keys() == set()


def test_classes_that_are_printed_whole_are_found_in_any_package() -> None:
    assert sorted(fields_of_printed()) == sorted(PRINTED)


def test_describe_and_the_gateway_have_the_same_keys_for_a_partition() -> None:
    described, served = set(fields_of_printed()["PartitionFacts"]), set(models.Partition.model_fields)
    assert served - described == HTTP_ALONE
    assert {"topic", "partitions", "remote_segments", "remote_bytes"} <= set(models.TopicSummary.model_fields)


def test_the_words_are_documented() -> None:
    section = FORMATS.read_text().partition("## One word for one key\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == WORDS.keys()
