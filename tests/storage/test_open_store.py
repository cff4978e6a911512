"""The URL of a store: the store that it opens, and the errors for a wrong one."""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient

from tierstate.state.errors import InvalidRequest, MissingExtra
from tierstate.storage.azure import AzureStore
from tierstate.storage.azure_options import azure_client as connected
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.gcs import GcsStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.open import open_store
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store

from .cloud_stores import ACCOUNT, KEY
from .cloud_stores import azure_client as azure_client
from .cloud_stores import azure_endpoint as azure_endpoint
from .cloud_stores import gcs_bucket as gcs_bucket
from .cloud_stores import gcs_endpoint as gcs_endpoint


def test_each_scheme_opens_its_store(tmp_path: Path) -> None:
    assert isinstance(open_store("memory:"), MemoryStore)
    folder = open_store((tmp_path / "with space").as_uri())
    assert isinstance(folder, DirectoryStore)
    assert folder.description == (tmp_path / "with space").as_uri()
    store = open_store("s3://bucket/a/b/", StoreOptions("http://127.0.0.1:1", "us-east-1"))
    assert isinstance(store, S3Store)
    assert store.description == "s3://bucket/a/b"
    google = open_store("gs://bucket/a/b/", StoreOptions("http://127.0.0.1:1"))
    assert isinstance(google, GcsStore)
    assert google.description == "gs://bucket/a/b"
    azure = open_store("az://container/a/b/", StoreOptions("https://account.blob.core.windows.net"))
    assert isinstance(azure, AzureStore)
    assert azure.description == "az://container/a/b"
    google.close()
    azure.close()


def test_keys_are_relative_to_the_prefix(s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    inner = open_store(f"s3://{s3_bucket}/a/b", StoreOptions(s3_endpoint, "us-east-1"))
    outer = open_store(f"s3://{s3_bucket}", StoreOptions(s3_endpoint, "us-east-1"))
    inner.put_if_absent("key", b"x")
    assert [info.key for info in outer.list()] == ["a/b/key"]
    assert [info.key for info in inner.list()] == ["key"]


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
        ("gs://", "bucket"),
        ("gs://bucket/a//b", "empty parts"),
        ("az:///prefix", "container"),
        ("az://container", "needs its account"),
        ("http://127.0.0.1", "unknown kind"),
        ("memory://x", "unknown kind"),
        ("s3://[bucket", "not a store URL"),
    ],
)
def test_the_error_for_a_wrong_url_names_the_right_form(url: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        open_store(url)


def test_a_secret_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidRequest, match="credentials") as raised:
        open_store("s3://key:hunter2@bucket")
    assert "hunter2" not in str(raised.value)


def test_an_endpoint_is_for_clouds_only(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="endpoint"):
        open_store(tmp_path.as_uri(), StoreOptions("http://127.0.0.1:9000"))


@pytest.mark.parametrize(
    ("url", "storage_class", "says"),
    [
        ("s3://bucket", "DEEP_ARCHIVE", "not readable at once"),
        ("s3://bucket", "GLACIER", "not readable at once"),
        ("az://container", "Archive", "not readable at once"),
        ("az://container", "STANDARD_IA", "Hot, Cool and Cold"),
        ("file:///folder", "STANDARD_IA", "takes storage_class"),
    ],
)
def test_a_storage_class_that_no_reader_can_read_at_once_is_refused(url: str, storage_class: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        open_store(url, StoreOptions(storage_class=storage_class))


@pytest.mark.parametrize("scheme", ["gs", "az"])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (StoreOptions(sse="AES256"), "sse"),
        (StoreOptions(path_style=True), "path_style"),
        (StoreOptions(region="eu"), "region"),
    ],
)
def test_options_of_s3_are_refused_elsewhere_not_dropped(scheme: str, options: StoreOptions, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        open_store(f"{scheme}://name", options)


def test_a_google_store_has_no_access_key_and_does_not_repeat_it() -> None:
    with pytest.raises(InvalidRequest, match="application default") as raised:
        open_store("gs://bucket", StoreOptions(credentials=("id", "hunter2")))
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "library", "extra"),
    [("gs://bucket", "google.cloud.storage", "gcs"), ("az://container", "azure.storage.blob", "azure")],
)
def test_a_missing_library_is_named_by_its_extra(
    url: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name == library or name.startswith((f"{library}.", "tierstate.storage.gcs", "tierstate.storage.azure")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=rf"the extra \[{extra}\]"):
        open_store(url, StoreOptions("http://127.0.0.1:1"))


def test_a_google_store_is_opened_by_its_settings(gcs_endpoint: str, gcs_bucket: str) -> None:
    inner = open_store(f"gs://{gcs_bucket}/a/b", StoreOptions(gcs_endpoint))
    outer = open_store(f"gs://{gcs_bucket}", StoreOptions(gcs_endpoint))
    inner.put_if_absent("key", b"x")
    assert [info.key for info in outer.list()] == ["a/b/key"]
    assert [info.key for info in inner.list()] == ["key"]


@pytest.mark.slow
def test_an_azure_store_is_opened_by_its_settings_or_by_a_connection_string(
    azure_endpoint: str, azure_client: ContainerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"az://{azure_client.container_name}/a/b"
    by_key = open_store(url, StoreOptions(azure_endpoint, credentials=KEY))
    by_key.put_if_absent("key", b"x")
    text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY[1]};BlobEndpoint={azure_endpoint};"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    for endpoint in (None, azure_endpoint):
        by_text = open_store(url, StoreOptions(endpoint))
        assert by_text.get("key") == b"x"
        by_text.close()
    by_key.close()


SECRET = b64encode(b"hunter2").decode()


def test_azure_uses_the_key_then_the_connection_string_then_microsofts_search(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"AccountName=two;AccountKey={SECRET}"
    for options, account, searches in (
        (StoreOptions(credentials=("one", SECRET)), "one", False),
        (StoreOptions(), "two", False),
        (StoreOptions("https://three.blob.core.windows.net"), "three", True),
    ):
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "" if options.endpoint else text)
        client, search = connected("container", options, "az://container")
        assert client.url == f"https://{account}.blob.core.windows.net/container"
        assert (search is not None) == searches
        client.close()


@pytest.mark.parametrize(
    ("options", "connection_string", "says"),
    [
        (StoreOptions("https://two.blob.core.windows.net"), f"AccountName=one;AccountKey={SECRET}", "another acc"),
        (StoreOptions(), f"AccountKey={SECRET};nonsense", "cannot be built"),
        (StoreOptions("http://one.blob.core.windows.net"), "", "https"),
        (StoreOptions(), "", "needs its account"),
    ],
)
def test_azure_credentials_that_cannot_work_are_refused_and_not_repeated(
    options: StoreOptions, connection_string: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string)
    with pytest.raises(InvalidRequest, match=says) as raised:
        AzureStore("container", "", options)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
