"""How people write the retention of an archive."""

from __future__ import annotations

import pytest

from tierstate.runtime.agent_settings import Expire
from tierstate.runtime.remote_retention import RemoteRetention, parse_retention

YEAR_MS = 365 * 86_400_000


@pytest.mark.parametrize(
    ("text", "retention"),
    [
        ("topic", None),
        ("forever", RemoteRetention(-1, -1)),
        ("7y", RemoteRetention(7 * YEAR_MS, -1)),
        ("1h30m", RemoteRetention(5_400_000, -1)),
        ("10TiB", RemoteRetention(-1, 10 * 2**40)),
    ],
)
def test_a_retention_is_topic_forever_a_duration_or_a_size(text: str, retention: RemoteRetention | None) -> None:
    assert parse_retention(text) == retention


@pytest.mark.parametrize("text", ["7", "0", "", "ever", "-1", "7y 10TiB"])
def test_a_text_that_may_mean_two_things_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a retention"):
        parse_retention(text)


@pytest.mark.parametrize("rule", ["payments", "=7y", "[=7y", "payments=7"])
def test_a_rule_that_cannot_be_read_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=r"not a (rule|retention|regular expression)"):
        Expire(topics=(rule,))


def test_the_first_rule_that_matches_the_whole_name_counts() -> None:
    expire = Expire(retention="30d", topics=("payments-eu=topic", "payments-.*=7y"))
    assert expire.of("payments-eu", trims=False) is None
    assert expire.of("payments-us", trims=False) == RemoteRetention(7 * YEAR_MS)
    assert expire.of("my-payments-us", trims=False) == RemoteRetention(30 * 86_400_000)
    assert Expire().of("orders", trims=False) == RemoteRetention()
    assert Expire().of("orders", trims=True) is None
