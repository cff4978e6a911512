"""Reads at hand need no broker and no store: they bring the same bytes as an ordinary read, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.fetch.two_tiers import Golden
from tierstate.fetch.logical import BOUNDS_AGE_S
from tierstate.fetch.piece import AtHand, Fetched
from tierstate.log.batch import iter_batches
from tierstate.runtime.clock import ManualClock
from tierstate.state.errors import TierstateError
from tierstate.state.ids import TopicId
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.routing import Isolation, Tier
from tierstate.state.segment import Compression

Make = Callable[..., Golden]
TIERS = (Tier.AUTO, Tier.REMOTE, Tier.PREFER_REMOTE)


def refuse() -> None:
    raise AssertionError("somebody was asked")


def at_hand(golden: Golden, offset: int, max_bytes: int = 4096, **how: Any) -> Fetched | None:
    """Return the read at hand; any request to the store or the broker fails the test."""
    how = {"isolation": Isolation.READ_COMMITTED, "tier": Tier.REMOTE, **how}
    golden.gets[:] = [lambda key: refuse()] * 5
    golden.local.answers[:] = [refuse] * 5
    try:
        plan = golden.reader.at_hand("t", 0, offset, max_bytes=max_bytes, **how)
        return None if plan is None else whole_of(plan)
    finally:
        golden.gets.clear()
        golden.local.answers.clear()


def whole_of(found: AtHand) -> Fetched | None:
    """Return the piece, or None if the plan no longer holds or its bytes are not in the cache."""
    data = found.data() if found.holds() else None
    return None if data is None else replace(found.piece, data=b"".join(data))


def pieces(golden: Golden, isolation: Isolation, tier: Tier, max_bytes: int) -> Iterator[Fetched]:
    offset, end = 0, golden.folder.bases[-1]
    while offset < end:
        piece = golden.reader.fetch("t", 0, offset, max_bytes=max_bytes, isolation=isolation, tier=tier)
        yield piece
        offset = piece.next_offset


@pytest.mark.parametrize("below", [0, 50])
@pytest.mark.parametrize("max_bytes", [1, 700, 4096, 1 << 20])
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("isolation", list(Isolation))
def test_a_read_at_hand_brings_what_a_read_brings(
    golden_log: Make, isolation: Isolation, tier: Tier, max_bytes: int, below: int
) -> None:
    """``below``: the broker still has this much of what is copied."""
    golden = golden_log(clock=ManualClock())
    golden.local.local_start = golden.folder.bases[-1] - below
    count = 0
    for piece in list(pieces(golden, isolation, tier, max_bytes)):
        again = at_hand(golden, piece.offset, max_bytes, isolation=isolation, tier=tier)
        if again is not None:
            assert again == piece
            count += 1
    assert count or max_bytes < 700  # a window that holds no whole batch is read again, larger


@pytest.mark.parametrize("offset", [1, 37, 400])
def test_an_offset_within_a_batch_is_read_again(golden_log: Make, offset: int) -> None:
    """The beginning of its batch was not looked up before."""
    golden = golden_log(clock=ManualClock())
    golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE)
    assert at_hand(golden, offset) is None


def test_nothing_is_at_hand_before_the_first_read(golden_log: Make) -> None:
    assert at_hand(golden_log(clock=ManualClock()), 0) is None


def test_nothing_is_at_hand_longer_than_bounds_are_believed(golden_log: Make) -> None:
    clock = ManualClock()
    golden = golden_log(clock=clock)
    golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE)
    golden.reader.topic("t")
    clock.advance(BOUNDS_AGE_S * 0.9)
    assert at_hand(golden, 0) is not None
    clock.advance(BOUNDS_AGE_S * 0.2)
    golden.reader.topic("t")
    golden.reader.partition("t", 0).local_bounds()
    assert at_hand(golden, 0) is None


def test_bytes_that_left_the_cache_are_not_at_hand(golden_log: Make) -> None:
    golden = golden_log(clock=ManualClock())
    golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE)
    assert at_hand(golden, 0) is not None
    cache = golden.remote.cache
    cache.max_bytes = 1
    golden.reader.fetch("t", 0, golden.folder.bases[-1] - 1, tier=Tier.REMOTE)
    assert at_hand(golden, 0) is None


def test_records_of_the_broker_are_left_to_it(golden_log: Make) -> None:
    golden = golden_log(clock=ManualClock())
    golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE)
    assert at_hand(golden, 0, tier=Tier.AUTO) is None
    assert at_hand(golden, 0, tier=Tier.LOCAL) is None
    assert at_hand(golden, 0, tier=Tier.PREFER_REMOTE) is not None


def test_an_offset_that_is_wrong_is_left_to_the_read_that_says_so(golden_log: Make) -> None:
    golden = golden_log(clock=ManualClock())
    golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE)
    assert at_hand(golden, 10**9) is None
    with pytest.raises(TierstateError):
        golden.reader.fetch("t", 0, 10**9, tier=Tier.REMOTE)


def test_a_topic_created_again_is_not_read_by_what_was_known_of_the_other(golden_log: Make) -> None:
    clock = ManualClock()
    golden = golden_log(clock=clock)
    golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE)
    clock.advance(0.6)
    golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE)
    golden.control.deleted = True
    clock.advance(0.5)
    assert at_hand(golden, 0) is None  # the name is believed for a second


def planned(golden: Golden) -> AtHand:
    """Return the plan of the first batches, which every reader asks for."""
    how: dict[str, Any] = {"isolation": Isolation.READ_COMMITTED, "tier": Tier.REMOTE}
    whole = golden.reader.fetch("t", 0, 0, max_bytes=4096, **how)
    plan = golden.reader.at_hand("t", 0, 0, max_bytes=4096, **how)
    assert plan is not None
    assert whole_of(plan) == whole
    assert plan.size == len(whole.data)
    return plan


def renewed(golden: Golden, offset: int = 0) -> None:
    golden.reader.renew("t", 0, offset, isolation=Isolation.READ_COMMITTED, tier=Tier.REMOTE)


def test_a_plan_holds_as_long_as_the_facts_of_its_route_are_confirmed(golden_log: Make) -> None:
    clock = ManualClock()
    golden = golden_log(clock=clock)
    plan = planned(golden)
    for _ in range(3):
        clock.advance(BOUNDS_AGE_S * 0.9)
        assert plan.holds()
        renewed(golden)
    clock.advance(BOUNDS_AGE_S * 1.1)
    assert not plan.holds()
    renewed(golden)
    assert plan.holds()


def grown(golden: Golden) -> None:
    golden.local.high_watermark += 1


def led_by_another(golden: Golden) -> None:
    golden.local.elect(golden.local.epochs[-1][0] + 1)


def log_start_moved(golden: Golden) -> None:
    golden.tiers.start_log_at(golden.folder.bases[1])
    golden.tiers.view.require_fresh(0, 0)


@pytest.mark.parametrize("happens", [grown, led_by_another, log_start_moved])
def test_a_plan_ends_when_the_log_is_another_than_it_was(golden_log: Make, happens: Callable[[Golden], None]) -> None:
    clock = ManualClock()
    golden = golden_log(clock=clock)
    plan = planned(golden)
    happens(golden)
    renewed(golden, golden.folder.bases[1])
    assert not plan.holds()


def test_a_plan_ends_when_another_topic_has_the_name(golden_log: Make) -> None:
    clock = ManualClock()
    golden = golden_log(clock=clock)
    plan = planned(golden)
    clock.advance(0.6)
    golden.reader.partition("t", 0).renew(0, Isolation.READ_COMMITTED, Tier.REMOTE)
    golden.control._described = replace(golden.control._described, topic_id=TopicId.of(b"another-topic-id"))
    clock.advance(0.5)
    assert golden.reader.topic("t").topic_id != plan.piece.topic_id
    assert not plan.holds()


def test_a_plan_has_no_bytes_when_the_cache_let_any_go(golden_log: Make) -> None:
    """Chunks that come back are new ones, whose checksums were not checked."""
    clock = ManualClock()
    golden = golden_log(clock=clock)
    plan = planned(golden)
    cache = golden.remote.cache
    kept, cache.max_bytes = cache.max_bytes, 1
    golden.reader.fetch("t", 0, golden.folder.bases[-1] - 1, tier=Tier.REMOTE)
    assert plan.data() is None
    cache.max_bytes = kept
    golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE)
    assert plan.data() is None
    assert at_hand(golden, 0) is not None


def damaged(golden: Golden) -> None:
    """Damage the last byte of the first segment's first batch, in the store; no chunk of it has a checksum."""
    key, store = object_key(golden.segments[0].object_key, ObjectKind.LOG), golden.tiers.store
    data = bytearray(store.get(key))
    first = next(iter_batches(bytes(data), source="store"))
    data[first.size_bytes - 1] ^= 0xFF
    store.delete(key)
    store.put_if_absent(key, bytes(data))


def test_checksums_are_looked_at_where_bytes_are_at_hand(golden_log: Make) -> None:
    golden = golden_log("none", clock=ManualClock(), compression=Compression.NONE, older=True)
    damaged(golden)
    golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE)
    assert at_hand(golden, 0) is None, "who decodes what `fetch` reads is told"


def test_bytes_are_checked_once_as_long_as_they_stay_in_the_cache(golden_log: Make) -> None:
    golden = golden_log("none", clock=ManualClock(), compression=Compression.NONE, older=True)
    whole = golden.reader.fetch("t", 0, 0, max_bytes=4096, tier=Tier.REMOTE)
    assert at_hand(golden, 0) == at_hand(golden, 0) == whole
    damaged(golden)
    assert at_hand(golden, 0) == whole
    cache = golden.remote.cache
    kept, cache.max_bytes = cache.max_bytes, 1
    golden.reader.fetch("t", 0, golden.folder.bases[-1] - 1, tier=Tier.REMOTE)
    cache.max_bytes = kept
    golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE)
    assert at_hand(golden, 0) is None
