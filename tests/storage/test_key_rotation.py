"""The key of an S3 store is changed while the store is open. moto decides which keys are valid."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import settings as moto_settings

from tierstate.runtime import live_secret
from tierstate.runtime.listener import Event, LoginAccepted, LoginRefused
from tierstate.runtime.live_secret import LiveSecret, Reference
from tierstate.state.errors import AccessDenied
from tierstate.state.offsets import ByteRange
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store

_numbers = itertools.count(1)
ROOT: dict[str, Any] = {
    "region_name": "us-east-1",
    "aws_access_key_id": "test",
    "aws_secret_access_key": "test",
}
ALL = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'

Place = Callable[["Account"], StoreOptions]


@dataclass
class Account:
    """A user with one object in a bucket, whose key is in files."""

    endpoint: str
    folder: Path
    iam: Any
    user: str
    bucket: str
    events: list[Event] = field(default_factory=list)

    def make(self) -> str:
        """Make a key, put it into the files, and return its id."""
        made = self.iam.create_access_key(UserName=self.user)["AccessKey"]
        key, secret = made["AccessKeyId"], made["SecretAccessKey"]
        (self.folder / "id").write_text(f"{key}\n")
        (self.folder / "secret").write_text(f"{secret}\n")
        text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
        (self.folder / "credentials").write_text(text)
        return str(key)

    def revoke(self, key: str) -> None:
        self.iam.delete_access_key(UserName=self.user, AccessKeyId=key)


@pytest.fixture
def account(s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Account:
    number = next(_numbers)
    made = Account(
        s3_endpoint,
        tmp_path,
        boto3.client("iam", endpoint_url=s3_endpoint, **ROOT),
        f"rotated-{number}",
        f"rotated-{os.getpid()}-{number}",
    )
    s3 = boto3.client("s3", endpoint_url=s3_endpoint, **ROOT)
    s3.create_bucket(Bucket=made.bucket)
    s3.put_object(Bucket=made.bucket, Key="there", Body=b"bytes")
    made.iam.create_user(UserName=made.user)
    made.iam.put_user_policy(UserName=made.user, PolicyName="all", PolicyDocument=ALL)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return made


@pytest.fixture(autouse=True)
def strict(account: Account) -> Iterator[None]:
    """Check keys from here on; the account's own client is no longer allowed to."""
    before = moto_settings.INITIAL_NO_AUTH_ACTION_COUNT
    yield
    moto_settings.INITIAL_NO_AUTH_ACTION_COUNT = before


def by_settings(account: Account) -> StoreOptions:
    def secret(name: str) -> LiveSecret:
        reference = Reference("file", (name,), account.folder)
        return LiveSecret(reference, reference.read())

    return StoreOptions(account.endpoint, "us-east-1", credentials=(secret("id"), secret("secret")), max_attempts=1)


def by_boto(account: Account) -> StoreOptions:
    return StoreOptions(account.endpoint, "us-east-1", max_attempts=1)


@pytest.mark.parametrize("place", [by_settings, by_boto])
def test_a_store_goes_on_with_the_next_key_and_names_one_that_is_refused(
    place: Place, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_rights(act: Callable[[], Any]) -> Any:
        monkeypatch.setattr(moto_settings, "INITIAL_NO_AUTH_ACTION_COUNT", float("inf"))
        done = act()
        monkeypatch.setattr(moto_settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        return done

    monkeypatch.setattr(live_secret, "AGAIN_S", -1.0)
    first = with_rights(account.make)
    with closing(S3Store(account.bucket, "", place(account), listener=account.events.append)) as store:
        assert store.get("there") == b"bytes"
        second = with_rights(account.make)
        with_rights(lambda: account.revoke(first))
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(lambda _: store.get_range("there", ByteRange(1, 3)), range(8))) == {b"yt"}
        assert store.head("there").size == 5
        store.put_if_absent("new", b"x")
        assert not account.events

        with_rights(lambda: account.revoke(second))
        for _ in range(2):
            with pytest.raises(AccessDenied, match=f"access_key={second}"):
                store.get("there")
        refused = [each for each in account.events if isinstance(each, LoginRefused)]
        assert [(each.service, each.user, each.again) for each in refused] == [
            ("store", second, False),
            ("store", second, True),
        ]
        with_rights(account.make)
        assert store.get("there") == b"bytes"
        assert isinstance(account.events[-1], LoginAccepted)
