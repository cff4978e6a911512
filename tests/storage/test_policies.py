"""The policies of `deploy/policies/`: all that agents and readers ask of a store, and nothing else.

moto decides by S3's policies. No emulator decides by Google's roles or Azure's: there the calls of our own code are
counted, and a table gives each the permission that the cloud's documentation names for it.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import settings as moto_settings

from tierstate.runtime.settings import Settings
from tierstate.state.errors import AccessDenied, ObjectNotFound
from tierstate.state.objects import UnfinishedUpload
from tierstate.state.offsets import ByteRange, TimestampMs
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ROOT / "deploy" / "policies"
_numbers = itertools.count(1)


def policy(name: str) -> Any:
    text = (POLICIES / name).read_text()
    return yaml.safe_load(text) if name.endswith(".yaml") else json.loads(text)


# --- S3: decided by moto ---------------------------------------------------------------------------------------------


def s3_actions(name: str) -> list[str]:
    return [action for statement in policy(name)["Statement"] for action in statement["Action"]]


ROOT_KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}


@pytest.fixture
def guarded(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], S3Store]:
    """Return a function that opens a bucket with one object as a user who has only the rights of a policy."""
    number = next(_numbers)
    bucket = f"guarded-{os.getpid()}-{number}"
    root: dict[str, Any] = {"endpoint_url": s3_endpoint, "region_name": "us-east-1", **ROOT_KEYS}
    s3, iam = boto3.client("s3", **root), boto3.client("iam", **root)
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="tier/there", Body=b"bytes")

    def opened(document: Any) -> S3Store:
        user, policy = f"user-{number}", json.dumps(for_moto(document)).replace("BUCKET", bucket)
        iam.create_user(UserName=user)
        iam.put_user_policy(UserName=user, PolicyName="its", PolicyDocument=policy)
        key = iam.create_access_key(UserName=user)["AccessKey"]
        monkeypatch.setattr(moto_settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        options = StoreOptions(
            s3_endpoint, "us-east-1", credentials=(key["AccessKeyId"], key["SecretAccessKey"]), max_attempts=2
        )
        return S3Store(bucket, "tier", options)

    return opened


def for_moto(document: Any) -> Any:
    """Adapt a policy: moto asks for the right to delete many objects at the bucket; S3 asks at each object."""
    for statement in document["Statement"]:
        if "s3:DeleteObject" in statement["Action"]:
            statement["Resource"] = [statement["Resource"], "arn:aws:s3:::BUCKET"]
    return document


def reads(store: S3Store) -> None:
    assert store.get("there") == b"bytes"
    assert store.get_range("there", ByteRange(1, 3)) == b"yt"
    assert store.head("there").size == 5
    assert "there" in [each.key for each in store.list()]
    with pytest.raises(ObjectNotFound):
        store.head("not-there")


def torn() -> Iterator[bytes]:
    yield bytes(20 << 20)
    raise EOFError


def writes(store: S3Store) -> None:
    store.put_if_absent("small", b"1")
    store.put_stream("large", [bytes(9 << 20)])
    with pytest.raises(EOFError):
        store.put_stream("torn", torn())
    assert list(store.unfinished_uploads("torn")) == []
    store.abort_upload(UnfinishedUpload("torn", "long-gone", TimestampMs(0)))
    assert store.replace_if_same("small", b"2", b"1")
    store.delete("small")
    store.delete_many(["large"])


def works(store: S3Store, act: Callable[[S3Store], None]) -> bool:
    try:
        act(store)
    except AccessDenied:
        return False
    except AssertionError:  # an upload that may not be aborted is left
        return False
    return True


def everything(store: S3Store) -> None:
    reads(store)
    writes(store)


def test_an_agent_does_all_it_does_under_its_policy(guarded: Callable[[Any], S3Store]) -> None:
    everything(guarded(policy("s3-agent.json")))


def test_a_reader_reads_under_its_policy_and_may_nothing_else(guarded: Callable[[Any], S3Store]) -> None:
    store = guarded(policy("s3-reader.json"))
    reads(store)
    for act in (
        lambda: store.put_if_absent("more", b"1"),
        lambda: store.put_stream("more", [bytes(9 << 20)]),
        lambda: store.replace_if_same("there", b"2", b"bytes"),
        lambda: store.delete("there"),
        lambda: store.delete_many(["there"]),
    ):
        with pytest.raises(AccessDenied):
            act()


@pytest.mark.parametrize(
    ("name", "action"), [(name, each) for name in ("s3-agent.json", "s3-reader.json") for each in s3_actions(name)]
)
def test_every_right_of_a_policy_is_needed(name: str, action: str, guarded: Callable[[Any], S3Store]) -> None:
    document = policy(name)
    for statement in document["Statement"]:
        statement["Action"] = [each for each in statement["Action"] if each != action] or ["s3:GetBucketLocation"]
    assert not works(guarded(document), everything if name == "s3-agent.json" else reads)


def test_no_policy_allows_removing_versions_or_changing_the_bucket() -> None:
    """An intruder with an agent's credentials cannot destroy data that object versions keep."""
    for name in ("s3-agent.json", "s3-reader.json"):
        assert [each for each in s3_actions(name) if "Version" in each or "*" in each or ":PutBucket" in each] == []


def test_the_lifecycle_is_one_that_s3_takes_and_no_upload_that_still_runs_is_aborted(s3_endpoint: str) -> None:
    rules = policy("s3-lifecycle.json")
    root: dict[str, Any] = {"endpoint_url": s3_endpoint, "region_name": "us-east-1", **ROOT_KEYS}
    s3 = boto3.client("s3", **root)
    s3.create_bucket(Bucket="kept-tidy")
    s3.put_bucket_lifecycle_configuration(Bucket="kept-tidy", LifecycleConfiguration=rules)
    (days,) = [each["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] for each in rules["Rules"][:1]]
    assert days * 86_400 > Settings().sweep.grace
    assert not any("Expiration" in each and "Days" in each["Expiration"] for each in rules["Rules"])


# --- Google, Azure: every call of ours has its permission ------------------------------------------------------------

NOTHING = ""
GOOGLE = {
    "_client.bucket": NOTHING,  # makes no request
    "_client.close": NOTHING,
    "_bucket.blob": NOTHING,
    "blob.generate_signed_url": NOTHING,  # on the bucket: a gateway's own right, where it has no key file
    "_session.close": NOTHING,
    "_session.get": "storage.objects.get",
    "_transport.delete": NOTHING,  # ends an upload by the URL that is its secret
    "_transport.put": "storage.objects.create",
    "_client.list_blobs": "storage.objects.list",
    "blob.create_resumable_upload_session": "storage.objects.create",
    "blob.delete": "storage.objects.delete",
    "blob.reload": "storage.objects.get",
    "blob.upload_from_string": "storage.objects.create",
    "blob.storage_class": NOTHING,
}
BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/"
AZURE = {
    "_container.close": NOTHING,
    "_container.get_blob_client": NOTHING,
    "_container.delete_blobs": f"{BLOBS}delete",
    "_container.list_blobs": f"{BLOBS}read",
    "_credential.close": NOTHING,
    "blob.stage_block": f"{BLOBS}write",
    "blob.commit_block_list": f"{BLOBS}write",
    "blob.delete_blob": f"{BLOBS}delete",
    "blob.download_blob": f"{BLOBS}read",
    "blob.get_blob_properties": f"{BLOBS}read",
    "blob.upload_blob": f"{BLOBS}write",
}
CLIENTS = {"_client", "_bucket", "_session", "_transport", "_container", "_credential", "blob"}


def calls(pattern: str) -> set[str]:
    """Return the methods of a cloud's client that our store names: called, or passed to a function that repeats."""
    methods = set()
    for file in (ROOT / "storage").glob(pattern):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute | ast.Name):
                owner = node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id
                if owner in CLIENTS:
                    methods.add(f"{owner}.{node.attr}")
    return methods


FIELDS = {
    "_session.hooks",
    "_session.credentials",
    "blob.metadata",
    "blob.name",
    "blob.last_modified",
    "blob.size",
    "blob.updated",
    "blob.crc32c",
    "_client.api_endpoint",
} | {
    "blob.url",
    "_container.account_name",
    "_container.container_name",
    "_container.credential",
    "_container.url",
}


@pytest.mark.parametrize(("pattern", "table"), [("gcs*.py", GOOGLE), ("azure*.py", AZURE)], ids=["google", "azure"])
def test_every_call_of_a_store_is_one_whose_permission_is_known(pattern: str, table: dict[str, str]) -> None:
    assert calls(pattern) - FIELDS == table.keys()


READS = ("get", "list", "read")


def test_the_roles_of_google_have_what_the_calls_need_and_no_more() -> None:
    needed = set(GOOGLE.values()) - {NOTHING}
    assert set(policy("gcs-agent.yaml")["includedPermissions"]) == needed
    reader = {each for each in needed if each.endswith(READS)}
    assert set(policy("gcs-reader.yaml")["includedPermissions"]) == reader


def test_the_roles_of_azure_have_what_the_calls_need_and_no_more() -> None:
    needed = set(AZURE.values()) - {NOTHING}
    for name, expected in (("agent", needed), ("reader", {each for each in needed if each.endswith(READS)})):
        role = policy(f"azure-{name}.json")
        assert set(role["DataActions"]) == expected
        assert role["Actions"] == role["NotActions"] == role["NotDataActions"] == []
        assert role["IsCustom"]


def test_readers_only_read() -> None:
    """The packages without an agent ask only for what a reader's policy allows."""
    writing = {"put_if_absent", "put_stream", "delete", "delete_many", "replace_if_same", "abort_upload"}
    for room in ("api", "consumer", "fetch", "spark"):
        for file in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Attribute) and node.attr in writing:
                    owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
                    assert "store" not in owner, f"{file.name}: {owner}.{node.attr}"
