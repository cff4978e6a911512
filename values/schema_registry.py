"""Request the schemas that values name from a schema registry with Confluent's API, at one address.

    0, four bytes of an id, the value          the bytes of a value that names its schema
    GET <url>/schemas/ids/7                    {"schema": "…", "schemaType": "AVRO", "references": […]}
    GET <url>/subjects/S/versions/3            the same for a reference
    GET <url>/subjects/S/versions/latest       the same, with its id
    PUT, DELETE <url>/mode/S                   {"mode": "IMPORT"}, while a version is registered with its id
    POST <url>/subjects/S/versions             {"schema": "…", "id": 7, "version": 3, …}
    …?format=serialized                        for Protobuf, the schema as a FileDescriptorProto in base64

Redirects are not followed, so that no answer decides which address is requested next. An answer is limited in bytes
and, with its retries, in time, even if it arrives slowly.
"""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import urllib3

from ..runtime.clock import Clock
from ..runtime.gateway_settings import Registry
from ..state.errors import AccessDenied, CorruptData, InvalidRequest, TimedOut, Unavailable

MAGIC = 0
FRAME = struct.Struct(">bI")
TIMEOUT_S = 10.0
MOST_BYTES = 4 * 1024 * 1024
"""The size limit of one answer, in bytes."""
MOST_REFERENCES = 64
"""The limit of a schema's references, direct and indirect."""
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_RETRIED = (429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """The version of a subject to which another schema refers as ``name``."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """``kind``: AVRO, JSON, PROTOBUF or another kind of the registry. ``id``: None if the answer does not have it."""

    kind: str
    text: str
    references: tuple[SchemaReference, ...]
    id: int | None = None


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """The settings with which any process can reach a registry. ``ca``: a file of authorities that replaces the
    system's. ``certificate``, ``key``: files of tierstate's client certificate. ``timeout``: seconds.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    timeout: float = TIMEOUT_S


class AnsweredOtherwise(Unavailable):
    """The registry's answer for one schema is not valid. Its answers for other schemas may be."""


class _NoSuchSchema(CorruptData):
    pass


class SchemaRegistry:
    """A client of a registry. Thread-safe."""

    def __init__(self, access: RegistryAccess, clock: Clock, *, retries: int = 0) -> None:
        self._url, self._clock, self._timeout = access.url.rstrip("/"), clock, access.timeout
        again = urllib3.Retry(
            retries, redirect=False, backoff_factor=0.2, status_forcelist=_RETRIED, raise_on_status=False
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
        """Return the schema of an id. Raises CorruptData if the registry does not have the id, or if its answer is too
        large. Also raises Unavailable, TimedOut and AccessDenied.
        """
        return self._request(f"{self._url}/schemas/ids/{id}", serialized)

    def referenced(self, reference: SchemaReference, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema of a reference. Raises the errors of `schema`."""
        subject = quote(reference.subject, safe="")
        return self._request(f"{self._url}/subjects/{subject}/versions/{reference.version}", serialized)

    def latest(self, subject: str) -> RegisteredSchema:
        """Return a subject's newest schema, with its id. Raises InvalidRequest if there is none, and as `schema`."""
        try:
            schema = self._request(f"{self._url}/subjects/{quote(subject, safe='')}/versions/latest", False)
        except _NoSuchSchema as error:
            raise InvalidRequest("the schema registry has no such subject", subject=subject, **error.facts) from error
        if schema.id is None:
            raise Unavailable("the schema registry does not answer as one", url=self._url)
        return schema

    def whole(self, schema: RegisteredSchema) -> list[str]:
        """Return the texts of all schemas that ``schema`` refers to, then its own text. Each text follows those it
        refers to.

        Raises CorruptData for too many references, and as `schema`.
        """
        names: set[str] = set()
        texts: list[str] = []
        requests = 0

        def add(registered_schema: RegisteredSchema) -> None:
            nonlocal requests
            for reference in registered_schema.references:
                if reference.name in names:
                    continue
                if requests >= MOST_REFERENCES:
                    raise CorruptData(f"a schema refers to more than {MOST_REFERENCES} others")
                requests += 1  # before the request: references may form a cycle
                add(self.referenced(reference))
                names.add(reference.name)
            texts.append(registered_schema.text)

        add(schema)
        return texts

    def subjects(self) -> list[str]:
        """Return the names of all subjects. Raises the errors of `schema`."""
        return [str(each) for each in self._list(f"{self._url}/subjects")]

    def versions(self, subject: str) -> list[int]:
        """Return the numbers of a subject's versions. Raises the errors of `schema`."""
        return [int(each) for each in self._list(f"{self._url}/subjects/{quote(subject, safe='')}/versions")]

    def register(self, subject: str, version: int, schema: RegisteredSchema) -> None:
        """Add a version of a subject with its number and its id, and return the subject to its mode before.

        The registry takes ids in mode IMPORT only. A process that is killed leaves that mode: register again ends it.
        Raises InvalidRequest if the registry refuses the schema, and as `schema`.
        """
        name = quote(subject, safe="")
        references = [asdict(each) for each in schema.references]
        body = {
            "schema": schema.text, "schemaType": schema.kind, "references": references, "id": schema.id,
            "version": version,
        }  # fmt: skip
        mode = f"{self._url}/mode/{name}"
        self._answer(f"{mode}?force=true", "PUT", {"mode": "IMPORT"})
        try:
            self._answer(f"{self._url}/subjects/{name}/versions", "POST", body)
        finally:
            self._answer(mode, "DELETE")

    def _list(self, url: str) -> list[Any]:
        with suppress(ValueError, RecursionError):
            if isinstance(answer := json.loads(self._answer(url)), list):
                return answer
        raise AnsweredOtherwise("the schema registry does not answer as one", url=url)

    def _request(self, url: str, serialized: bool) -> RegisteredSchema:
        return _schema(self._answer(url + ("?format=serialized" if serialized else "")), url)

    def _answer(self, url: str, method: str = "GET", body: object = None) -> bytes:
        until = self._clock.monotonic() + self._timeout
        try:
            answer = self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=None if body is None else {**self._pool.headers, "content-type": _CONTENT_TYPE},
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
            cause = getattr(error, "reason", error)  # the last attempt's error, if there were several
            # a subclass of urllib3's TimeoutError that is not a time-out
            refused = isinstance(cause, urllib3.exceptions.NewConnectionError)
            if isinstance(cause, urllib3.exceptions.TimeoutError) and not refused:
                raise TimedOut("the schema registry did not answer in time", url=url) from error
            raise Unavailable(f"the schema registry does not answer: {type(cause).__name__}", url=url) from error
        if answer.status in (401, 403):
            raise AccessDenied("the schema registry refuses", url=url, status=answer.status)
        if answer.status == 404:
            raise _NoSuchSchema("the schema registry has no schema of this id", url=url)
        if method != "GET" and answer.status in (409, 422):
            raise InvalidRequest("the schema registry refuses this", url=url, reason=data.decode("utf-8", "replace"))
        if answer.status != 200:
            kind = Unavailable if answer.status in _RETRIED else AnsweredOtherwise
            raise kind("the schema registry does not answer as one", url=url, status=answer.status)
        return data

    def _whole(self, answer: urllib3.BaseHTTPResponse, until: float, url: str) -> bytes:
        body = bytearray()
        while piece := answer.read1(65_536):
            body += piece
            if len(body) > MOST_BYTES:
                raise CorruptData(f"the schema registry's answer is larger than {MOST_BYTES} bytes", url=url)
            if self._clock.monotonic() > until:
                raise TimedOut("the schema registry's answer does not end", url=url)
        return bytes(body)


def _schema(answer: bytes, url: str) -> RegisteredSchema:
    try:
        record: dict[str, Any] = json.loads(answer)
        references = tuple(
            SchemaReference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in record.get("references") or ()
        )
        id = None if record.get("id") is None else int(record["id"])
        return RegisteredSchema(str(record.get("schemaType") or "AVRO"), str(record["schema"]), references, id)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AnsweredOtherwise("the schema registry does not answer as one", url=url) from error


def is_url(text: str) -> bool:
    """Return whether the text is a URL of http or https with a host."""
    try:
        place = urllib3.util.parse_url(text)
    except urllib3.exceptions.LocationParseError:
        return False
    return place.scheme in ("http", "https") and bool(place.host)


def access_by_url(url: str) -> RegistryAccess:
    """Return the access for a URL that may include name and password."""
    place = urllib3.util.parse_url(url)
    name, _, password = unquote(place.auth or "").partition(":")
    return RegistryAccess(place._replace(auth=None).url, name, password)


def registry_access(settings: Registry) -> RegistryAccess | None:
    """Return the registry's address and credentials, or None if no registry is set."""
    if not settings.url:
        return None
    return RegistryAccess(
        settings.url,
        settings.user,
        "" if settings.password is None else settings.password.get_secret_value(),
        settings.ca,
        settings.certificate,
        settings.key,
        settings.timeout,
    )
