"""Catalog servers for the tables of tests: Iceberg's own REST catalog, and the Glue and S3 of moto."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

from tests.servers.rest_catalog import RestCatalog, rest_catalog

KEYS = {"access-key-id": "test", "secret-access-key": "test", "region": "us-east-1"}
_numbers = itertools.count()


@contextmanager
def s3_and_glue() -> Iterator[str]:
    """Yield the endpoint of both. Their content is shared by the whole process."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def bucket_of(moto: str) -> str:
    name = f"lake-{os.getpid()}-{next(_numbers)}"
    own: dict[str, Any] = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=moto, **own)
    client.create_bucket(Bucket=name)
    client.close()
    return name


def on_s3(moto: str) -> dict[str, str]:
    return {"s3.endpoint": moto, **{f"s3.{name}": value for name, value in KEYS.items()}}


def of_glue(moto: str) -> dict[str, str]:
    own = {f"glue.{name}": value for name, value in KEYS.items()}
    return {"type": "glue", "glue.endpoint": moto, **own, **on_s3(moto), "warehouse": f"s3://{bucket_of(moto)}/lake"}


@contextmanager
def rest_on_s3(moto: str, folder: Path) -> Iterator[RestCatalog]:
    environment = {
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": moto,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    with rest_catalog(folder, f"s3://{bucket_of(moto)}/lake", environment) as server:
        yield server
