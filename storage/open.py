"""A URL -> a ready object store. The only place that knows the schemes.

A store's prefix (``s3://bucket/prefix``) is a folder: keys are relative to it. The key prefix of Aiven's plugin is
another thing, part of every key, verbatim and without a ``/``: `segment/keys.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..runtime.clock import Clock, SystemClock
from ..state.errors import InvalidRequest
from .directory import DirectoryStore
from .memory import MemoryStore
from .object_store import ObjectStore
from .s3 import S3Options, S3Store

_RIGHT = "file:///absolute/folder or s3://bucket/prefix"


def open_store(
    url: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    clock: Clock | None = None,
    s3: S3Options | None = None,
) -> ObjectStore:
    """``file:///folder``, ``s3://bucket/prefix`` or, for tests, ``memory:``. Raises InvalidRequest, AccessDenied.

    ``s3``: time-outs and credentials of an S3 store; ``endpoint`` and ``region`` are added to it.
    """
    clock = clock or SystemClock()
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidRequest(f"not a store URL; {_RIGHT} is one") from error
    if "@" in parts.netloc:  # the URL is not repeated: there is a secret in it
        raise InvalidRequest("a store URL carries no credentials; give them in the environment or in AWS profiles")
    if parts.query or parts.fragment:
        raise InvalidRequest("a store URL has no '?' and no '#'; write them as %3F and %23", scheme=parts.scheme)
    if endpoint is not None and parts.scheme != "s3":
        raise InvalidRequest("only an s3:// store has an endpoint", url=url, endpoint=endpoint)
    match parts.scheme:
        case "file":
            return _directory(url, parts.netloc, unquote(parts.path))
        case "s3":
            if not parts.netloc:
                raise InvalidRequest("an S3 store URL names its bucket: s3://bucket/prefix", url=url)
            options = replace(s3 or S3Options(), endpoint=endpoint, region=region)
            return S3Store(parts.netloc, unquote(parts.path), options, clock)
        case "memory" if not parts.netloc and not parts.path:
            return MemoryStore(clock)
        case "gs" | "az":
            raise InvalidRequest(f"this version has no {parts.scheme}:// store; {_RIGHT} works", url=url)
        case "":
            raise InvalidRequest(f"a store URL begins with its scheme: {_RIGHT}", url=url)
        case _:
            raise InvalidRequest(f"unknown kind of store; {_RIGHT} works", url=url)


def _directory(url: str, host: str, path: str) -> DirectoryStore:
    if host not in ("", "localhost") or not path.startswith("/"):
        raise InvalidRequest("a folder's URL is absolute and has three slashes: file:///absolute/folder", url=url)
    return DirectoryStore(Path(path))
