"""Opens an object store by its URL. No other file knows the schemes.

A store's prefix (``s3://bucket/prefix``) is a folder: keys are relative to it. The key prefix of Aiven's plugin is
different: it is part of every key, verbatim and without a ``/`` (`state/object_keys.py`).
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..runtime.clock import Clock, SystemClock
from ..runtime.listener import Listener, ignore
from ..state.errors import InvalidRequest, MissingExtra
from .directory import DirectoryStore
from .memory import MemoryStore
from .object_store import ObjectStore
from .options import StoreOptions

DEFAULT = StoreOptions()

_RIGHT = "file:///absolute/folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"


def open_store(
    url: str,
    options: StoreOptions = DEFAULT,
    *,
    clock: Clock | None = None,
    listener: Listener = ignore,
    make: bool = False,
) -> ObjectStore:
    """Open ``file:///folder``, ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``, ``memory:``.

    ``options`` apply to the stores of a cloud. ``make`` creates a missing folder. Buckets and containers are never
    created. Raises InvalidRequest, AccessDenied, MissingExtra.
    """
    clock = clock or SystemClock()
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidRequest(f"not a store URL; {_RIGHT} is one") from error
    if "@" in parts.netloc:  # the error does not repeat the URL: it contains a secret
        raise InvalidRequest("a store URL carries no credentials; give them in the environment or in the settings")
    if parts.query or parts.fragment:
        raise InvalidRequest("a store URL has no '?' and no '#'; write them as %3F and %23", scheme=parts.scheme)
    if options.endpoint is not None and parts.scheme not in ("s3", "gs", "az"):
        raise InvalidRequest("only an s3://, gs:// or az:// store has an endpoint", url=url, endpoint=options.endpoint)
    match parts.scheme:
        case "file":
            return _directory(url, parts.netloc, unquote(parts.path), make)
        case "s3" | "gs" | "az" if not parts.netloc:
            what = "container" if parts.scheme == "az" else "bucket"
            raise InvalidRequest(f"this store's URL names its {what}: {parts.scheme}://{what}/prefix", url=url)
        case "s3":
            # Imported here because importing boto3 takes half a second of CPU, and half of the callers do not use S3.
            from .s3 import S3Store

            return S3Store(parts.netloc, unquote(parts.path), options, clock, listener=listener)
        case "gs":
            return _google(parts.netloc, unquote(parts.path), options, clock, listener)
        case "az":
            return _azure(parts.netloc, unquote(parts.path), options, clock, listener)
        case "memory" if not parts.netloc and not parts.path:
            return MemoryStore(clock)
        case "":
            raise InvalidRequest(f"a store URL begins with its scheme: {_RIGHT}", url=url)
        case _:
            raise InvalidRequest(f"unknown kind of store; {_RIGHT} works", url=url)


def _directory(url: str, host: str, path: str, make: bool) -> DirectoryStore:
    if host not in ("", "localhost") or not path.startswith("/"):
        raise InvalidRequest("a folder's URL is absolute and has three slashes: file:///absolute/folder", url=url)
    return DirectoryStore(Path(path), make=make)


def _google(bucket: str, prefix: str, options: StoreOptions, clock: Clock, listener: Listener) -> ObjectStore:
    _not_for_s3_only("gs", options)
    if options.credentials is not None:
        raise InvalidRequest(
            "a gs:// store has no access key: it uses Google's application default credentials",
            bucket=bucket,
            variable="GOOGLE_APPLICATION_CREDENTIALS",
        )
    try:
        from .gcs import GcsStore
    except ImportError as error:
        raise MissingExtra("gcs", "a gs:// store") from error
    return GcsStore(bucket, prefix, options, clock, listener=listener)


def _azure(container: str, prefix: str, options: StoreOptions, clock: Clock, listener: Listener) -> ObjectStore:
    _not_for_s3_only("az", options)
    try:
        from .azure import AzureStore
        from .azure_options import CONNECTION_STRING
    except ImportError as error:
        raise MissingExtra("azure", "an az:// store") from error
    # Credentials: the account's key, else the connection string in the environment, else Microsoft's own search.
    text = os.environ.get(CONNECTION_STRING) if options.credentials is None else None
    return AzureStore(container, prefix, options, clock, listener=listener, connection_string=text or None)


def _not_for_s3_only(scheme: str, options: StoreOptions) -> None:
    """Raise InvalidRequest for options that only S3 uses: a user must not believe that encryption is on."""
    s3_options = {
        "region": options.region is not None,
        "path_style": options.path_style is not None,
        "sse": options.sse != "none",
    }
    if names := [name for name, is_set in s3_options.items() if is_set]:
        raise InvalidRequest(f"a {scheme}:// store has no {', '.join(names)}: only s3:// has")
