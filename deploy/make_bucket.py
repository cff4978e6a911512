"""Create the bucket of a store URL where it is missing: what an administrator of S3 does once, by hand.

    python make_bucket.py tierstate.toml

Credentials come from the environment, as everywhere (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY).
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

OURS = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}
PATIENT = Config(retries={"mode": "standard", "total_max_attempts": 12}, s3={"addressing_style": "path"})
"""The store may come up after us: a minute or two of tries."""


def main(settings: Path) -> None:
    store = tomllib.loads(settings.read_text())["store"]
    bucket = urlsplit(store["url"]).netloc
    client = boto3.client("s3", endpoint_url=store.get("endpoint"), region_name=store.get("region"), config=PATIENT)
    try:
        client.create_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] not in OURS:
            raise
    print(f"bucket {bucket} is there")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
