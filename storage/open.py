"""Opens an object store by its URL. No other file knows the schemes.

A store's prefix (``s3://bucket/prefix``) is a folder: keys are relative to it. The key prefix of Aiven's plugin is
different: it is part of every key, verbatim and without a ``/`` (`state/object_keys.py`).
"""

from __future__ import annotations

from collections.abc import Callable
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

_EXTRAS = {"s3": "", "gs": "gcs", "az": "azure"}
"""The extra that each scheme needs."""
_ARCHIVES = {"s3": ("GLACIER", "DEEP_ARCHIVE"), "az": ("ARCHIVE",), "gs": ()}
"""Storage classes whose objects must be restored before they can be read. (Google's ARCHIVE is read at once.)"""
_RIGHT = "file:///absolute/folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"


def open_store(
    url: str,
    options: StoreOptions = DEFAULT,
    *,
    clock: Clock | None = None,
    listener: Listener = ignore,
    make: bool = False,
    marked: bool = True,
) -> ObjectStore:
    """Open ``file:///folder``, ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``, ``memory:``.

    ``options`` apply to the stores of a cloud. ``make`` creates a missing folder. Buckets and containers are never
    created. ``marked``: as for `DirectoryStore`. Raises InvalidRequest, AccessDenied, MissingExtra.
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
    for name, value in (("endpoint", options.endpoint), ("storage_class", options.storage_class)):
        if value is not None and parts.scheme not in ("s3", "gs", "az"):
            raise InvalidRequest(f"only an s3://, gs:// or az:// store takes {name}", url=url, **{name: value})
    if (options.storage_class or "").upper() in _ARCHIVES.get(parts.scheme, ()):
        raise InvalidRequest(
            "objects of this storage class are not readable at once: take another, as GLACIER_IR, COLDLINE or Cold",
            url=url,
            storage_class=options.storage_class,
        )
    match parts.scheme:
        case "file":
            if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
                right = "a folder's URL is absolute and has three slashes: file:///absolute/folder"
                raise InvalidRequest(right, url=url)
            return DirectoryStore(Path(unquote(parts.path)), make=make, marked=marked)
        case "s3" | "gs" | "az" if not parts.netloc:
            what = "container" if parts.scheme == "az" else "bucket"
            raise InvalidRequest(f"this store's URL names its {what}: {parts.scheme}://{what}/prefix", url=url)
        case "s3" | "gs" | "az":
            return _cloud(parts.scheme, options)(parts.netloc, unquote(parts.path), options, clock, listener=listener)
        case "memory" if not parts.netloc and not parts.path:
            return MemoryStore(clock)
        case "":
            raise InvalidRequest(f"a store URL begins with its scheme: {_RIGHT}", url=url)
        case _:
            raise InvalidRequest(f"unknown kind of store; {_RIGHT} works", url=url)


def _cloud(scheme: str, options: StoreOptions) -> Callable[..., ObjectStore]:
    """Return the class of stores with this scheme. Imported here because importing boto3 takes half a second of CPU.

    Raises InvalidRequest for options that only S3 uses: a user must not believe that encryption is on.
    """
    s3_options = {
        "region": options.region is not None,
        "path_style": options.path_style is not None,
        "sse": options.sse != "none",
    }
    if scheme != "s3" and (names := [name for name, is_set in s3_options.items() if is_set]):
        raise InvalidRequest(f"a {scheme}:// store has no {', '.join(names)}: only s3:// has")
    if scheme == "gs" and options.credentials is not None:
        raise InvalidRequest(
            "a gs:// store has no access key: it uses Google's application default credentials",
            variable="GOOGLE_APPLICATION_CREDENTIALS",
        )
    try:
        if scheme == "s3":
            from .s3 import S3Store

            return S3Store
        if scheme == "gs":
            from .gcs import GcsStore

            return GcsStore
        from .azure import AzureStore

        return AzureStore
    except ImportError as error:
        raise MissingExtra(_EXTRAS[scheme], f"a {scheme}:// store") from error
