"""How long a table of a compacted topic may wait before a deletion can be missed."""

from __future__ import annotations

import pytest

from tests.lake.exports import EVERY_COLUMN, TOPIC_ID
from tests.twins.manual_clock import ManualClock
from tierstate.lake.columns import Columns, Only
from tierstate.lake.compacted import require_foldable
from tierstate.lake.table_facts import TableFacts
from tierstate.lake.table_place import Seen
from tierstate.lake.tombstones import Tombstones
from tierstate.state.errors import InvalidRequest
from tierstate.state.ids import TopicId
from tierstate.state.offsets import TimestampMs
from tierstate.state.retention import TopicConfig
from tierstate.state.routing import Isolation
from tierstate.values.form import Form

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
COMPACTED = TopicConfig(cleanup_policy=frozenset({"compact"}))


@pytest.mark.parametrize(
    ("keep_ms", "age_ms", "lacks"),
    [
        (DAY_MS, 0, False),
        (DAY_MS, DAY_MS - HOUR_MS - 1, False),
        (DAY_MS, DAY_MS - HOUR_MS, True),
        (10_000, 7_499, False),
        (10_000, 7_500, True),
        (DAY_MS, -HOUR_MS, False),
        (DAY_MS, -HOUR_MS - 1, True),
    ],
)
def test_a_deletion_may_be_missed_an_hour_or_a_quarter_before_the_cleaner_may_remove_it(
    keep_ms: int, age_ms: int, lacks: bool
) -> None:
    tombstones = Tombstones(ManualClock(), keep_ms)
    assert tombstones.may_lack(Seen(TimestampMs(tombstones.clock.now_ms() - age_ms), keep_ms)) is lacks


def test_a_table_of_which_nobody_knows_when_it_had_all_may_lack_a_deletion() -> None:
    tombstones = Tombstones(ManualClock(), DAY_MS)
    assert tombstones.may_lack(None)
    assert tombstones.is_old(None)
    assert not tombstones.is_old(tombstones.now())


def facts(**more: object) -> TableFacts:
    columns = Columns(EVERY_COLUMN, value=Form("json", "a int"), only=more.pop("only", None))  # type: ignore[arg-type]
    return TableFacts("t", TOPIC_ID, Isolation.READ_COMMITTED, (columns,), True, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "config", "says"),
    [
        (facts(), COMPACTED, "--upsert key"),
        (facts(upsert=("value.a",)), COMPACTED, "--upsert key"),
        (facts(upsert=("key",), only=Only(corrupt=False)), COMPACTED, "without --dead-letter"),
        (facts(upsert=("key",)), TopicConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=9), "higher"),
        (facts(upsert=("key",), more=(TopicId(str(TOPIC_ID)),)), TopicConfig(), "several topics"),
    ],
)
def test_a_table_that_could_not_stay_equal_to_its_log_is_refused(
    table: TableFacts, config: TopicConfig, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        require_foldable(table, config)
    require_foldable(facts(upsert=("key",)), COMPACTED)
