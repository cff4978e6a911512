"""An S3 store of one's own: a versitygw with an empty bucket, and a bare client of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3

from tests.servers.store_server import StoreServer, versitygw

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET, REGION = "bench", "us-east-1"
KEYS = ACCESS_KEY, SECRET_KEY = "bench-access", "bench-secret"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Its objects are files in ``folder``. ``section`` holds its lines of [store], without the section's name."""

    server: StoreServer
    folder: Path
    section: str


@contextmanager
def bucket(folder: Path) -> Iterator[Bucket]:
    """Serve a bucket whose objects are below ``folder``."""
    with versitygw(folder / "server", *KEYS) as server:
        client_of(server.url).create_bucket(Bucket=BUCKET)
        (folder / "secret").write_text(SECRET_KEY)
        yield Bucket(
            server,
            folder / "server" / "buckets" / BUCKET,
            f'url = "s3://{BUCKET}/tiers"\nendpoint = "{server.url}"\nregion = "{REGION}"\n'
            f'access_key_id = "{ACCESS_KEY}"\nsecret_access_key = {{ file = "{folder / "secret"}" }}',
        )


def client_of(endpoint: str) -> S3Client:
    """Return a boto3 client with its defaults."""
    return boto3.Session(*KEYS, region_name=REGION).client("s3", endpoint_url=endpoint)
