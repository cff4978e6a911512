"""The types of settings: size, duration, address, pattern, secret. Each is shown as people write it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from .units import parse_duration, parse_size, show_duration, show_size

STORE_SCHEMES = ("file", "s3", "gs", "az")
SECRET_OF_KAFKA = re.compile(r"password|passphrase|secret|jaas|oauthbearer\.config|(^|\.)(key|keystore)\.pem$")
"""Matches names of librdkafka's properties that are secrets: never printed, nor written into a file or command line."""
SECRET_OF_CATALOG = re.compile(r"password|secret|credential|(^|[.-])token$|account-key|connection-string")
"""Matches names of pyiceberg's properties that are secrets."""


class Section(BaseModel):
    """A section of the settings. Unknown keys are errors, and a section is immutable after parsing."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class Address:
    """The address at which a server listens. Port 0 takes a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: object) -> Address:
        """Return the address of ``host:port`` or ``[v6]:port``. Raises ValueError otherwise."""
        if isinstance(text, Address):
            return text
        host, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not bare or (":" in bare and bare == host) or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
            raise ValueError(f"not an address: {text!r}; write host:port, as 127.0.0.1:9404")
        return cls(bare, int(port))

    @property
    def everywhere(self) -> bool:
        """True for a wildcard address: a server can listen on it, but no client can connect to it."""
        return self.host in ("0.0.0.0", "::")

    @property
    def of_this_machine(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {text!r}, {error}") from None
    return text


def _one_address(address: Address) -> Address:
    if address.everywhere or not address.port:
        raise ValueError(
            f"not an address that others can ask: {address}; write one host and its port, as broker-1:9404"
        )
    return address


def _store_url(url: str) -> str:
    if not url:
        return url
    parts = urlsplit(url)
    if parts.scheme not in STORE_SCHEMES:
        raise ValueError("not a store: write " + ", ".join(f"{scheme}://…" for scheme in STORE_SCHEMES))
    _refuse_credentials(url)
    if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        raise ValueError("not a store: a folder is written with its full path, as file:///var/lib/store")
    if parts.scheme != "file" and not parts.netloc:
        raise ValueError(f"not a store: the bucket is missing, as {parts.scheme}://bucket/prefix")
    return url


def _http_url(url: str) -> str:
    if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc):
        raise ValueError("not an address: write http://host:port or https://host:port")
    _refuse_credentials(url)
    return url


def _refuse_credentials(url: str) -> None:
    if "@" in urlsplit(url).netloc:
        raise ValueError("credentials do not belong in a URL: they would be printed")
    if urlsplit(url).query:
        # signed queries are credentials too; a literal "?" is written in the path as %3F
        raise ValueError("no '?' in this URL: a query may carry credentials, and they would be printed")


SEVERAL = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
"""Takes one text for a list of one."""
Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(show_size, return_type=str, when_used="json")]
READS_DURATION = BeforeValidator(parse_duration)
Duration = Annotated[float, READS_DURATION, PlainSerializer(show_duration, return_type=str, when_used="json")]
Listen = Annotated[Address, BeforeValidator(Address.parse), PlainSerializer(str, return_type=str, when_used="json")]
Reachable = Annotated[Listen, AfterValidator(_one_address)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Patterns = Annotated[tuple[Pattern, ...], SEVERAL]
Names = Annotated[tuple[str, ...], SEVERAL]
Folders = Annotated[tuple[Path, ...], SEVERAL, PlainSerializer(lambda paths: [*map(str, paths)], when_used="json")]
StoreUrl = Annotated[str, AfterValidator(_store_url)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
