"""A schema registry as Confluent's, of which one thing is asked: the schema of an id.

GET <url>/schemas/ids/7  ->  {"schema": "…"}      for values that begin with 0, and the id in four bytes
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import urllib3

from ..state.errors import AccessDenied, CorruptData, Unavailable

TIMEOUT_S = 10.0
RETRIES = urllib3.Retry(3, backoff_factor=0.2, status_forcelist=(429, 500, 502, 503, 504), raise_on_status=False)


def is_url(text: str) -> bool:
    """Whether a registry can be asked there."""
    try:
        place = urllib3.util.parse_url(text)
    except urllib3.exceptions.LocationParseError:
        return False
    return place.scheme in ("http", "https") and bool(place.host)


@lru_cache(maxsize=1024)
def schema_text(url: str, id: int) -> str:
    """Kept for the process: an id never means another schema.

    Raises Unavailable, AccessDenied; CorruptData for an id that the registry does not have or that is not Avro's alone.
    """
    place = urllib3.util.parse_url(url)
    headers = urllib3.make_headers(basic_auth=unquote(place.auth)) if place.auth else {}
    asked = f"{place._replace(auth=None).url.rstrip('/')}/schemas/ids/{id}"
    try:
        answer = urllib3.PoolManager().request("GET", asked, headers=headers, timeout=TIMEOUT_S, retries=RETRIES)
    except urllib3.exceptions.HTTPError as error:
        raise Unavailable(f"the schema registry does not answer: {type(error).__name__}", url=asked) from error
    if answer.status in (401, 403):
        raise AccessDenied("the schema registry refuses", url=asked, status=answer.status)
    if answer.status == 404:
        raise CorruptData("the schema registry has no schema of this id", url=asked)
    if answer.status != 200:
        raise Unavailable("the schema registry does not answer as one", url=asked, status=answer.status)
    return _text(answer.data, asked)


def _text(answer: bytes, asked: str) -> str:
    try:
        found: dict[str, Any] = json.loads(answer)
        text = found["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable("the schema registry does not answer as one", url=asked) from error
    kind = found.get("schemaType", "AVRO")
    if kind != "AVRO" or found.get("references"):
        raise CorruptData("this schema is not Avro's alone", url=asked, type=kind, references=found.get("references"))
    return str(text)
