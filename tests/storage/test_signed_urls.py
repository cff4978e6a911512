"""A signed URL reads one object without credentials, any range of it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import urllib3
from Crypto.PublicKey import RSA

from tests.storage.cloud_stores import azure_client, azure_endpoint, azure_store, gcs_bucket, gcs_endpoint, gcs_store
from tierstate.storage.azure import AzureStore
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.gcs import GcsStore
from tierstate.storage.object_store import ObjectStore, SignsReads
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store

__all__ = ["azure_client", "azure_endpoint", "azure_store", "gcs_bucket", "gcs_endpoint", "gcs_store"]
KEY = "a topic/ö+%2F/0/00000000000000000000-x.log"
POOL = urllib3.PoolManager(retries=False)


def read(url: str, range: str | None = None, method: str = "GET") -> tuple[int, bytes]:
    answer = POOL.request(method, url, headers={} if range is None else {"range": range}, timeout=20)
    return answer.status, answer.data


def check(store: ObjectStore, signed: Callable[[str], str]) -> None:
    store.put_if_absent(KEY, b"0123456789")
    store.put_if_absent("other", b"secret")
    url = signed(KEY)
    assert read(url) == (200, b"0123456789")
    assert read(url, "bytes=2-4") == (206, b"234")
    assert read(url, "bytes=8-99") == (206, b"89")
    assert read(signed("none"))[0] == 404
    last = url[-1]
    assert read(url[:-1] + ("A" if last != "A" else "B"))[0] in (400, 403)
    assert read(url.replace(url.partition("?")[0].rpartition("/")[2], "other"))[0] == 403
    assert read(url, method="DELETE")[0] in (403, 405)
    assert store.get(KEY) == b"0123456789"


def test_a_signed_url_of_s3(versitygw_endpoint: str, versitygw_bucket: str) -> None:
    options = StoreOptions(versitygw_endpoint, "us-east-1", credentials=("test", "test"))
    store = S3Store(versitygw_bucket, "some/prefix", options)
    assert isinstance(store, SignsReads)
    check(store, lambda key: store.signed_url(key, 60))
    url = store.signed_url(KEY, 60)
    assert read(url, "bytes=10-")[0] == 416
    assert ("X-Amz-Algorithm=AWS4-HMAC-SHA256" in url, "X-Amz-Expires=60" in url) == (True, True)
    store.close()


def test_a_signed_url_of_azure_by_the_accounts_key(azure_store: AzureStore) -> None:
    assert isinstance(azure_store, SignsReads)
    check(azure_store, lambda key: azure_store.signed_url(key, 60))
    assert "sp=r&" in azure_store.signed_url(KEY, 60)


def test_a_signed_url_of_google_by_a_service_accounts_key(
    gcs_endpoint: str, gcs_store: GcsStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gcs_store.signed_url(KEY, 60) is None, "an emulator's credentials sign nothing"
    account = {
        "type": "service_account",
        "client_email": "reader@project.iam.gserviceaccount.com",
        "token_uri": f"{gcs_endpoint}/token",
        "private_key": RSA.generate(2048).export_key().decode(),
        "private_key_id": "1",
    }
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    signing = GcsStore("bucket", "some/prefix", StoreOptions())
    url = signing.signed_url(KEY, 60)
    signing.close()
    assert url is not None
    assert url.startswith("https://storage.googleapis.com/bucket/some/prefix/a%20topic/")
    assert ("X-Goog-Signature=" in url, "X-Goog-Expires=60" in url) == (True, True)


def test_a_folder_signs_nothing(tmp_path: Path) -> None:
    assert not isinstance(DirectoryStore(tmp_path), SignsReads)
