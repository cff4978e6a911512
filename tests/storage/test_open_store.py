"""A store's URL: what it opens, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tierstate.state.errors import InvalidRequest
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.open import open_store
from tierstate.storage.s3 import S3Store


def test_each_scheme_opens_its_store(tmp_path: Path) -> None:
    assert isinstance(open_store("memory:"), MemoryStore)
    folder = open_store((tmp_path / "with space").as_uri())
    assert isinstance(folder, DirectoryStore)
    assert folder.description == (tmp_path / "with space").as_uri()
    store = open_store("s3://bucket/a/b/", endpoint="http://127.0.0.1:1", region="us-east-1")
    assert isinstance(store, S3Store)
    assert store.description == "s3://bucket/a/b"


def test_keys_are_relative_to_the_prefix(s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    inner = open_store(f"s3://{s3_bucket}/a/b", endpoint=s3_endpoint, region="us-east-1")
    outer = open_store(f"s3://{s3_bucket}", endpoint=s3_endpoint, region="us-east-1")
    inner.put_if_absent("key", b"x")
    assert [found.key for found in outer.list()] == ["a/b/key"]
    assert [found.key for found in inner.list()] == ["key"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "scheme"),
        ("/var/lib/store", "scheme"),
        ("file://relative/folder", "three slashes"),
        ("file:relative", "three slashes"),
        ("file:///no/such/parent/folder", "parent"),
        ("file:///dev/null", "not a folder"),
        ("s3://", "bucket"),
        ("s3:///prefix", "bucket"),
        ("s3://bucket/a//b", "empty parts"),
        ("s3://bucket/a?versionId=1", "%3F"),
        ("gs://bucket", "this version has no gs"),
        ("az://container", "this version has no az"),
        ("http://127.0.0.1", "unknown kind"),
        ("memory://x", "unknown kind"),
        ("s3://[bucket", "not a store URL"),
    ],
)
def test_a_wrong_url_is_told_what_would_be_right(url: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        open_store(url)


def test_a_secret_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidRequest, match="credentials") as raised:
        open_store("s3://key:hunter2@bucket")
    assert "hunter2" not in str(raised.value)


def test_an_endpoint_is_for_s3_only(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="endpoint"):
        open_store(tmp_path.as_uri(), endpoint="http://127.0.0.1:9000")
