"""Options become exact offset ranges, or an error that names the option that asks for missing offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spark.conftest import Orders
from tests.spark.tiers import Tiers
from tierstate.broker.open import open_broker
from tierstate.runtime.clock import SystemClock
from tierstate.spark.open import OpenLog, chosen_partitions, open_log
from tierstate.spark.options import parse_options
from tierstate.spark.planning import resolve_ranges
from tierstate.spark.positions import TopicPartition
from tierstate.state.errors import InvalidRequest, OffsetOutOfRange, UnknownTopic
from tierstate.state.offsets import Extent

pytestmark = pytest.mark.kafka
NEVER = 2_000_000_000_000
START = 1_767_225_600_000
Resolve = Callable[..., dict[TopicPartition, Extent]]


@pytest.fixture(scope="module")
def opened(tiers: Tiers, orders: Orders) -> Iterator[OpenLog]:
    with open_log(parse_options(tiers.options(subscribe=orders.name)), SystemClock()) as log:
        yield log


@pytest.fixture
def resolve(tiers: Tiers, orders: Orders, opened: OpenLog) -> Resolve:
    def with_options(**options: str) -> dict[TopicPartition, Extent]:
        parsed = parse_options(tiers.options(subscribe=orders.name, **options))
        return resolve_ranges(parsed, opened.reader, opened.partitions)

    return with_options


@pytest.fixture
def by(orders: Orders) -> Callable[[object, object], str]:
    """Return a position for each of the two partitions, as JSON."""
    return lambda zero, one: json.dumps({orders.name: {"0": zero, "1": one}})


By = Callable[[object, object], str]


def end_of(orders: Orders) -> int:
    """Return the high watermark: the last record has none behind it."""
    last: int = orders.of(0)[-1][4]
    return last + 1


def test_everything_is_the_default(resolve: Resolve, orders: Orders) -> None:
    assert resolve() == {(orders.name, 0): (0, end_of(orders)), (orders.name, 1): (0, end_of(orders))}


def test_offsets_of_each_partition(resolve: Resolve, orders: Orders, by: By) -> None:
    ranges = resolve(startingOffsets=by(17, -2), endingOffsets=by(-1, 300))
    assert ranges == {(orders.name, 0): (17, end_of(orders)), (orders.name, 1): (0, 300)}


def test_an_empty_range_is_left_out(resolve: Resolve, by: By) -> None:
    assert resolve(startingOffsets=by(300, 5), endingOffsets=by(300, 5)) == {}


def test_a_start_above_the_end_is_an_error_however_they_are_set(resolve: Resolve, orders: Orders, by: By) -> None:
    first = orders.of(0)[0][5]
    assert resolve(startingOffsets=by(5, 5), endingTimestamp=str(NEVER))
    for option, chosen in (
        ("startingOffsets: the start offset 300 is greater than the end offset 5", {"endingOffsets": by(400, 5)}),
        ("startingOffsets: the start offset 300 is greater than the end offset 0", {"endingTimestamp": str(first)}),
    ):
        for loss in ("true", "false"):
            with pytest.raises(InvalidRequest, match=f"{option}.*partition={orders.name}-"):
                resolve(startingOffsets=by(300, 300), failOnDataLoss=loss, **chosen)


def test_positions_for_each_partition_must_name_them_all(resolve: Resolve, orders: Orders) -> None:
    some = json.dumps({orders.name: {"0": 5}})
    with pytest.raises(InvalidRequest, match=f"startingOffsets must name every .* missing={orders.name}-1$"):
        resolve(startingOffsets=some)
    more = json.dumps({orders.name: {"0": 5, "1": 5, "2": 5}})
    with pytest.raises(InvalidRequest, match=f"endingOffsetsByTimestamp must name every .* unknown={orders.name}-2$"):
        resolve(endingOffsetsByTimestamp=more)


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_offsets_that_are_not_there_are_an_error_unless_loss_is_accepted(
    resolve: Resolve, orders: Orders, by: By, side: str
) -> None:
    chosen = {f"{side}Offsets": by(999_999, 300)}
    with pytest.raises(
        OffsetOutOfRange, match=rf"{side}Offsets: .*partition={orders.name}-0 offset=999999 valid_start=0"
    ):
        resolve(**chosen)
    ranges = resolve(**chosen, failOnDataLoss="false").get((orders.name, 0))
    assert ranges == (None if side == "starting" else (0, end_of(orders)))


def test_times_choose_the_first_record_as_young_over_both_tiers(resolve: Resolve, orders: Orders) -> None:
    """The records are in the remote tier and in the local one; timestamps of the topic go backwards now and then."""
    for seconds in (0, 149, 150, 151, 239, 399, 498):
        time = START + seconds * 1000
        first = {key: next(record[4] for record in orders.of(key) if record[5] >= time) for key in (0, 1)}
        ranges = resolve(startingTimestamp=str(time))
        assert {key[1]: start for key, (start, _) in ranges.items()} == first
        ranges = resolve(endingTimestamp=str(time))
        assert {key[1]: end for key, (_, end) in ranges.items()} == {key: at for key, at in first.items() if at > 0}


def test_a_start_nothing_is_as_young_as_is_an_error_or_the_end(resolve: Resolve, orders: Orders, by: By) -> None:
    chosen = {"startingOffsetsByTimestamp": by(NEVER, START)}
    with pytest.raises(
        InvalidRequest, match=f"startingOffsetsByTimestamp: no record .*partition={orders.name}-0 timestamp={NEVER}"
    ):
        resolve(**chosen)
    ranges = resolve(**chosen, startingOffsetsByTimestampStrategy="latest")
    assert list(ranges) == [(orders.name, 1)]


def test_an_end_nothing_is_as_young_as_is_the_end(resolve: Resolve) -> None:
    assert resolve(endingTimestamp=str(NEVER)) == resolve()


def test_one_tier_alone_on_request(resolve: Resolve, orders: Orders) -> None:
    local = resolve(tierstate__tier="local")[orders.name, 0]
    remote = resolve(tierstate__tier="remote")[orders.name, 0]
    assert local == (orders.trimmed, end_of(orders))
    assert remote[0] == 0
    assert orders.trimmed < remote[1] < end_of(orders)


def test_a_view_kept_on_disk_says_the_same(resolve: Resolve, tiers: Tiers, orders: Orders, tmp_path: Path) -> None:
    options = parse_options(tiers.options(subscribe=orders.name, tierstate__state_dir=str(tmp_path)))
    with open_log(options, SystemClock()) as log:
        assert resolve_ranges(options, log.reader, log.partitions) == resolve()
    assert (tmp_path / "view").is_dir()


def test_a_pattern_matches_whole_names_and_neither_kafkas_topics_nor_ours(tiers: Tiers, orders: Orders) -> None:
    longer = tiers.create(f"{orders.name}-more")

    def chosen(**options: str) -> set[str]:
        choice = parse_options(tiers.options(**options)).choice
        with open_broker(tiers.kafka.client_config) as broker:
            return {topic for topic, _ in chosen_partitions(choice, broker.control, tiers.tier_state_topic)}

    assert chosen(subscribePattern=orders.name) == {orders.name}
    assert chosen(subscribePattern=f"{orders.name}-.*") == {longer}
    everything = chosen(subscribePattern=".*")
    assert {orders.name, longer} <= everything
    assert not everything & {tiers.tier_state_topic, "__consumer_offsets"}
    with open_log(parse_options(tiers.options(subscribePattern="no-such-.*")), SystemClock()) as log:
        assert log.partitions == ()
    with pytest.raises(UnknownTopic, match=f"option assign: no such partition. partition={orders.name}-2"):
        chosen(assign=json.dumps({orders.name: [0, 2]}))
