"""An S3 server of one's own with real signatures, and the lines by which a section of settings reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from tests.servers.needs import needs
from tests.servers.store_programs import VERSITYGW
from tests.servers.store_server import StoreServer, versitygw

SECRET = ("test", "testtest")
REGION = "us-east-1"


@dataclass
class OwnS3:
    """``lines``: the options of ``[store]``, ``[next_store]`` and rules, without the URL."""

    server: StoreServer
    client: Any
    lines: str

    def keys(self, bucket: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]


@contextmanager
def own_s3(folder: Path, *buckets: str) -> Iterator[OwnS3]:
    needs(VERSITYGW)
    with versitygw(folder / "s3", *SECRET) as server:
        client: Any = boto3.Session(*SECRET, region_name=REGION).client("s3", endpoint_url=server.url)
        for bucket in buckets:
            client.create_bucket(Bucket=bucket)
        secret = folder / "secret"
        secret.write_text(SECRET[1])
        lines = f'endpoint = "{server.url}"\nregion = "{REGION}"\naccess_key_id = "{SECRET[0]}"\n'
        yield OwnS3(server, client, f'{lines}secret_access_key = {{ file = "{secret}" }}\n')
        client.close()
