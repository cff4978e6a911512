"""Wrong arguments of `tierstate.connect` are named, before anything is connected."""

from __future__ import annotations

from typing import Any

import pytest

from tierstate import connect, errors


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka": "127.0.0.1:9092"}, "kafka is a mapping"),
        ({"settings": "s3://bucket"}, "settings is a mapping"),
        ({"bootstrap": {"bootstrap.servers": "127.0.0.1:9092"}}, "bootstrap is a text"),
        ({"gateway": "http://127.0.0.1:1", "store": "s3://bucket"}, "gateway stands alone"),
        ({"gateway": "http://127.0.0.1:1", "source": "bucket"}, "gateway stands alone"),
        ({"store": "s3://bucket", "source": "cluster"}, "view.source"),
        ({"source": "bucket"}, "store.url"),
        ({"token": "secret"}, "token is for a gateway"),
        ({"bootstrap": "127.0.0.1:9092"}, "store.url"),
        ({"store": "s3://bucket"}, "kafka.bootstrap.servers"),
    ],
)
def test_a_wrong_argument_is_named_and_what_was_meant_is_said(given: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=said):
        connect(**given)


def test_what_is_closed_says_so() -> None:
    with connect("127.0.0.1:1", "file:///nowhere") as log:
        assert "closed" not in repr(log)
    assert "closed" in repr(log)
    with pytest.raises(errors.InvalidRequest, match="closed"):
        log.topics()
