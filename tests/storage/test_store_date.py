"""A store behind HTTP shows its own clock in every answer."""

from __future__ import annotations

import time

import pytest

from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import ShowsDate
from tierstate.storage.s3 import S3Store


def test_an_answer_of_s3_shows_the_clock_of_s3(s3_store: S3Store) -> None:
    assert isinstance(s3_store, ShowsDate)
    list(s3_store.list("nothing/"))
    assert s3_store.date is not None
    assert abs(s3_store.date.at - time.time() * 1000) < 60_000


def test_a_folder_is_no_witness(directory_store: DirectoryStore) -> None:
    assert not isinstance(directory_store, ShowsDate)


@pytest.mark.parametrize("header", [None, "", "yesterday", "Tue, 99 Nov 2023 22:13:20 GMT"])
def test_an_unreadable_date_changes_nothing(s3_store: S3Store, header: str | None) -> None:
    s3_store.hear_date("Tue, 14 Nov 2023 22:13:20 GMT")
    s3_store.hear_date(header)
    assert s3_store.date is not None
    assert s3_store.date.at == 1_700_000_000_000
