"""A schema registry as Confluent's, asked at its one address for the schemas that values name.

    0, four bytes of an id, the value          how a value begins that names its schema
    GET <url>/schemas/ids/7                    {"schema": "…", "schemaType": "AVRO", "references": […]}
    GET <url>/subjects/S/versions/3            the same of a reference
    GET <url>/subjects/S/versions/latest       the same, with its id
    …?format=serialized                        of Protobuf, the schema as a FileDescriptorProto in base64

Nothing of an answer says where to ask: no redirect is followed. An answer is bounded in bytes and, with its repeats, in
time, however slowly it comes.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import urllib3

from ..runtime.clock import Clock
from ..state.errors import AccessDenied, CorruptData, InvalidRequest, TimedOut, Unavailable

MAGIC = 0
FRAME = struct.Struct(">bI")
TIMEOUT_S = 10.0
MOST_BYTES = 4 * 1024 * 1024
"""Of one answer."""
MOST_REFERENCES = 64
"""Of a schema, with all that these refer to."""
_AGAIN = (429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """What another schema calls ``name`` is this version of a subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """``kind``: AVRO, JSON, PROTOBUF or what else a registry may have. ``id``: where the answer says it."""

    kind: str
    text: str
    references: tuple[SchemaReference, ...]
    id: int | None = None


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """How a registry is asked, by any process. ``ca``: a file of authorities instead of the system's; ``certificate``,
    ``key``: files of ours. ``timeout``: seconds.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    timeout: float = TIMEOUT_S


class AnsweredOtherwise(Unavailable):
    """The registry answers, and for this schema with something else: it may have all others."""


class _NoSuchSchema(CorruptData):
    pass


class SchemaRegistry:
    """Thread-safe."""

    def __init__(self, access: RegistryAccess, clock: Clock, *, retries: int = 0) -> None:
        self._url, self._clock, self._timeout = access.url.rstrip("/"), clock, access.timeout
        again = urllib3.Retry(
            retries, redirect=False, backoff_factor=0.2, status_forcelist=_AGAIN, raise_on_status=False
        )
        headers = urllib3.make_headers(basic_auth=f"{access.user}:{access.password}" if access.user else None)
        self._pool = urllib3.PoolManager(
            headers={**headers, "accept-encoding": "identity"},
            retries=again,
            ca_certs=None if access.ca is None else str(access.ca),
            cert_file=None if access.certificate is None else str(access.certificate),
            key_file=None if access.key is None else str(access.key),
        )

    def schema(self, id: int, *, serialized: bool = False) -> RegisteredSchema:
        """Raises Unavailable, TimedOut, AccessDenied; CorruptData for an id that the registry does not have, or an
        answer that is too large.
        """
        return self._asked(f"{self._url}/schemas/ids/{id}", serialized)

    def referenced(self, reference: SchemaReference, *, serialized: bool = False) -> RegisteredSchema:
        """As `schema`."""
        subject = quote(reference.subject, safe="")
        return self._asked(f"{self._url}/subjects/{subject}/versions/{reference.version}", serialized)

    def latest(self, subject: str) -> RegisteredSchema:
        """With its id. Raises InvalidRequest for a subject that the registry does not have; and as `schema`."""
        try:
            found = self._asked(f"{self._url}/subjects/{quote(subject, safe='')}/versions/latest", False)
        except _NoSuchSchema as error:
            raise InvalidRequest("the schema registry has no such subject", subject=subject, **error.facts) from error
        if found.id is None:
            raise Unavailable("the schema registry does not answer as one", url=self._url)
        return found

    def whole(self, schema: RegisteredSchema) -> list[str]:
        """The texts of all that it refers to, each behind what it refers to itself, then its own.

        Raises CorruptData for too many; and as `schema`.
        """
        known: set[str] = set()
        texts: list[str] = []
        asked = 0

        def add(found: RegisteredSchema) -> None:
            nonlocal asked
            for reference in found.references:
                if reference.name in known:
                    continue
                if asked >= MOST_REFERENCES:
                    raise CorruptData(f"a schema refers to more than {MOST_REFERENCES} others")
                asked += 1  # before it is asked for: references may go round
                add(self.referenced(reference))
                known.add(reference.name)
            texts.append(found.text)

        add(schema)
        return texts

    def _asked(self, url: str, serialized: bool) -> RegisteredSchema:
        until = self._clock.monotonic() + self._timeout
        try:
            answer = self._pool.request(
                "GET",
                url + ("?format=serialized" if serialized else ""),
                timeout=self._timeout,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                data = self._whole(answer, until, url)
            finally:
                answer.close()
        except urllib3.exceptions.HTTPError as error:
            cause = getattr(error, "reason", error)  # of the last try, where there were several
            # of urllib3's time-outs by its class alone
            refused = isinstance(cause, urllib3.exceptions.NewConnectionError)
            if isinstance(cause, urllib3.exceptions.TimeoutError) and not refused:
                raise TimedOut("the schema registry did not answer in time", url=url) from error
            raise Unavailable(f"the schema registry does not answer: {type(cause).__name__}", url=url) from error
        if answer.status in (401, 403):
            raise AccessDenied("the schema registry refuses", url=url, status=answer.status)
        if answer.status == 404:
            raise _NoSuchSchema("the schema registry has no schema of this id", url=url)
        if answer.status != 200:
            kind = Unavailable if answer.status in _AGAIN else AnsweredOtherwise
            raise kind("the schema registry does not answer as one", url=url, status=answer.status)
        return _schema(data, url)

    def _whole(self, answer: urllib3.BaseHTTPResponse, until: float, url: str) -> bytes:
        found = bytearray()
        while piece := answer.read1(65_536):
            found += piece
            if len(found) > MOST_BYTES:
                raise CorruptData(f"the schema registry's answer is larger than {MOST_BYTES} bytes", url=url)
            if self._clock.monotonic() > until:
                raise TimedOut("the schema registry's answer does not end", url=url)
        return bytes(found)


def _schema(answer: bytes, url: str) -> RegisteredSchema:
    try:
        found: dict[str, Any] = json.loads(answer)
        references = tuple(
            SchemaReference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in found.get("references") or ()
        )
        id = None if found.get("id") is None else int(found["id"])
        return RegisteredSchema(str(found.get("schemaType") or "AVRO"), str(found["schema"]), references, id)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AnsweredOtherwise("the schema registry does not answer as one", url=url) from error


def is_url(text: str) -> bool:
    """Whether a registry can be asked there."""
    try:
        place = urllib3.util.parse_url(text)
    except urllib3.exceptions.LocationParseError:
        return False
    return place.scheme in ("http", "https") and bool(place.host)


def access_by_url(url: str) -> RegistryAccess:
    """Of a URL that may have name and password in it."""
    place = urllib3.util.parse_url(url)
    name, _, password = unquote(place.auth or "").partition(":")
    return RegistryAccess(place._replace(auth=None).url, name, password)
