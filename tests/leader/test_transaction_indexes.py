"""A copy hides the transactions that its markers abort, whatever the broker's transaction index has become."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.leader.world import World
from tierstate.log.transaction_index import ENTRY, format_transaction_index, open_before, parse_transaction_index
from tierstate.runtime.listener import CopyFailed, TransactionIndexRebuilt
from tierstate.runtime.metrics import Metrics
from tierstate.state.errors import CorruptData, Fenced
from tierstate.state.offsets import Offset
from tierstate.state.segment import RemoteSegment
from tierstate.storage.segment.manifest import IndexKind
from tierstate.storage.segment.reader import SegmentReader

NewWorld = Callable[..., World]
DAMAGE = ["producer", "first", "last", "stable", "version", "gone", "empty", "cut off", "an entry too many"]


def damaged(how: str, good: bytes) -> bytes | None:
    """Return the index as accidents leave it; the entry in the middle is hit."""
    entries = parse_transaction_index(good, "index")
    at = len(entries) // 2 * ENTRY.size
    places = {"version": 1, "producer": 9, "first": 17, "last": 25, "stable": 33}
    if how in places:
        bad = bytearray(good)
        bad[at + places[how]] ^= 0x20
        return bytes(bad)
    return {"gone": None, "empty": b"", "cut off": good[:-5]}.get(how, good + format_transaction_index(entries[:1]))


def damage(world: World, base: int, how: str) -> bytes:
    """Damage the index file, and return its original bytes."""
    file = world.file(base, ".txnindex")
    good = file.read_bytes()
    bad = damaged(how, good)
    file.unlink()
    if bad is not None:
        file.write_bytes(bad)
    return good


def index_of(world: World, segment: RemoteSegment) -> bytes | None:
    return SegmentReader.open(world.store, segment.object_key).indexes(IndexKind.TRANSACTION)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[RemoteSegment, ...]]:
    """Return the segments copied from undamaged folders, by case."""
    segments = {}
    for case in ("transactions", "opentxn"):
        world = World(tmp_path_factory.mktemp(case), case)
        process = world.process()
        process.copy_all()
        assert not [event for event in process.events if isinstance(event, TransactionIndexRebuilt)]
        segments[case] = world.view().readable
        world.close()
    return segments


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("case", ["transactions", "opentxn"])
def test_a_damaged_or_missing_index_is_rebuilt_from_the_markers_and_reported(
    case: str, how: str, new_world: NewWorld, sound: dict[str, tuple[RemoteSegment, ...]]
) -> None:
    world = new_world(case)
    bases = [base for base in world.rolled if world.file(base, ".txnindex").exists()]
    good = {base: damage(world, base, how) for base in bases}
    process = world.process()
    process.copy_all()
    segments = world.check_promises().readable
    assert [each.aborted for each in segments] == [each.aborted for each in sound[case]]
    assert [each.transaction_index_empty for each in segments] == [each.transaction_index_empty for each in sound[case]]
    assert {each.offsets.start: index_of(world, each) for each in segments if each.offsets.start in bases} == good
    events_heard = [event for event in process.events if isinstance(event, TransactionIndexRebuilt)]
    assert [event.file for event in events_heard] == [str(world.file(base, ".txnindex")) for base in bases]
    metrics = Metrics()
    for event in events_heard:
        metrics.listen(event)
    counted = f'tierstate_transaction_indexes_rebuilt_total{{topic="{world.name}"}} {float(len(bases))}'
    assert counted in metrics.exposition().decode()


@pytest.mark.parametrize("how", ["producer", "gone"])
def test_an_entry_lost_from_a_later_index_hides_no_less_of_the_segment_before(
    how: str, new_world: NewWorld, sound: dict[str, tuple[RemoteSegment, ...]]
) -> None:
    world = new_world("opentxn")
    for base in world.bases:
        if world.file(base, ".txnindex").exists():
            damage(world, base, how)
    process = world.process()
    session = process.begin()
    for expected in sound["opentxn"][:3]:
        segment = process.copy_next(session)
        assert segment.aborted == expected.aborted
    assert any(entry.last > each.offsets.end for each in sound["opentxn"][:3] for entry in each.aborted.entries)


def test_aborted_ranges_are_known_without_a_producer_snapshot(
    new_world: NewWorld, sound: dict[str, tuple[RemoteSegment, ...]]
) -> None:
    world = new_world("transactions")
    for file in world.folder.glob("*.snapshot"):
        file.unlink()
    process = world.process()
    process.copy_all()
    segments = world.view().readable
    assert not [event for event in process.events if isinstance(event, TransactionIndexRebuilt)]
    for each, expected in zip(segments, sound["transactions"], strict=True):
        inside = {entry for entry in expected.aborted.entries if entry.last in each.offsets}
        assert inside <= set(each.aborted.entries)


@pytest.mark.parametrize("how", ["producer", "last", "gone", "cut off", "an entry too many"])
def test_an_index_that_nothing_proves_otherwise_stops_the_copy_and_names_the_file(
    how: str, new_world: NewWorld
) -> None:
    """An entry below the segment cannot be rebuilt if no snapshot shows what was open before."""
    world = new_world("transactions")
    base = next(base for base in world.rolled if world.file(base, ".txnindex").exists())
    world.file(base, ".snapshot").unlink()
    damage(world, base, how)
    process = world.process()
    session = process.begin()
    while process.candidate(session).base_offset != base:
        process.copy_next(session)
    with pytest.raises(CorruptData, match="contradicts the markers") as raised:
        process.copy_next(session)
    assert raised.value.facts["file"] == str(world.file(base, ".txnindex"))
    assert "entry" in str(raised.value.facts["difference"]) or how == "cut off"
    assert base not in [each.offsets.start for each in world.check_promises().readable]
    process.work()
    assert [event for event in process.events if isinstance(event, CopyFailed)]


def test_a_damaged_snapshot_is_none(new_world: NewWorld) -> None:
    world = new_world("transactions")
    for base in world.bases:
        if world.file(base, ".snapshot").exists():
            world.flip(base, 7, ".snapshot")
    process = world.process()
    process.copy_all()
    assert not [event for event in process.events if isinstance(event, TransactionIndexRebuilt)]
    assert len(world.view().readable) == len(world.rolled)


def test_a_segment_in_which_no_open_transaction_ends_is_passed_over(new_world: NewWorld) -> None:
    """Its producer snapshot shows that: segments behind it are not read for as long as a long transaction lasts."""
    world = new_world("opentxn")
    first, between = world.rolled[1], world.rolled[2]
    opened = open_before(between, world.file(between, ".snapshot").read_bytes(), "snapshot").transactions
    after = open_before(world.rolled[3], world.file(world.rolled[3], ".snapshot").read_bytes(), "snapshot")
    assert opened
    assert opened.items() <= after.transactions.items()
    world.flip(between, 30)
    process = world.process()
    session = process.begin()
    process.copy_next(session)
    assert process.copy_next(session).offsets.start == first


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_an_unreadable_later_segment_stops_the_copy(how: str, new_world: NewWorld) -> None:
    world = new_world("opentxn")
    base, later = (Offset(each) for each in world.rolled[2:4])
    with world.log.open_segment(world.partition, world.name, base, later) as files:
        opened = open_before(later, world.file(later, ".snapshot").read_bytes(), "snapshot")
        assert files.aborted_later(opened.transactions)
        if how == "damaged":
            world.flip(later, 100)
        else:
            world.file(later).unlink()
        with pytest.raises(CorruptData if how == "damaged" else Fenced):
            files.aborted_later(opened.transactions)
