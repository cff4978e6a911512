"""Content negotiation (RFC 9110, 12.5.1)."""

from __future__ import annotations

import pytest

from tierstate.api.media import ARROW, BATCHES, KAFKA_BINARY, KAFKA_JSON, NDJSON, negotiate
from tierstate.api.problems import NotAcceptable


@pytest.mark.parametrize(
    ("accept", "served"),
    [
        (None, NDJSON),
        ("*/*", NDJSON),
        ("application/*", NDJSON),
        (ARROW, ARROW),
        (ARROW.upper(), ARROW),
        (f"{KAFKA_JSON}, {KAFKA_BINARY}", KAFKA_BINARY),
        (f"{KAFKA_JSON};q=0.9, {KAFKA_BINARY};q=0.8", KAFKA_JSON),
        (f"text/html, {BATCHES};q=0.1", BATCHES),
        (f"*/*;q=0.1, {ARROW};q=0.2", ARROW),
        (f"{NDJSON};q=0, */*", KAFKA_BINARY),
        (f"*/*, {NDJSON};q=0.5", KAFKA_BINARY),
        (f"application/*;q=0.2, */*;q=0.9, {ARROW};q=0.3", ARROW),
        (f"{NDJSON};q=abc, {ARROW}", ARROW),
        (f"{ARROW}; charset=utf-8", ARROW),
        (f"{ARROW} ; Q = 1.0", ARROW),
    ],
)
def test_the_type_wanted_most_is_served(accept: str | None, served: str) -> None:
    assert negotiate(accept) == served


@pytest.mark.parametrize("accept", ["text/html", "application/xml", f"{ARROW};q=0", "text/*", ",", ";;;", "\u20ac"])
def test_an_unknown_type_is_refused_with_the_types_that_are_served(accept: str) -> None:
    with pytest.raises(NotAcceptable) as raised:
        negotiate(accept)
    assert ARROW in str(raised.value)
