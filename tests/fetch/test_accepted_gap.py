"""Readers at an accepted gap go on after it, but only with a fresh view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.fetch.two_tiers import NOW, Golden, golden_rows, rows_of
from tierstate.cli import consume, digest
from tierstate.cli.main import run
from tierstate.fetch.plan import Groups, plan, planned
from tierstate.fetch.plan_lines import PlanHead, plan_from, plan_lines
from tierstate.fetch.planned_split import Skipped
from tierstate.fetch.reader import LogReader
from tierstate.fetch.source import SearchedSource
from tierstate.state.errors import LogGap
from tierstate.state.facts import GapAccepted
from tierstate.state.ids import FactId
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs
from tierstate.state.routing import Isolation

Make = Callable[..., Golden]
PLAIN = Isolation.READ_UNCOMMITTED


def accept(golden: Golden) -> tuple[int, int]:
    """Accept the loss of the second segment, which was never copied. Return its start and its end, exclusive."""
    _, start, end, *_ = golden.folder.bases
    golden.local.local_start = end
    offsets = OffsetRange(Offset(start), Offset(end - 1))
    lineage = golden.folder.lineage().up_to(offsets.end)
    golden.tiers.say(GapAccepted(golden.tiers.partition, FactId.of(bytes(16)), offsets, lineage, "lost", "ops", NOW))
    golden.tiers.view.require_fresh(0, 0)
    return start, end


def read(reader: LogReader, start: int, end: int) -> list[int]:
    return [row[0] for row in rows_of(reader.scan("t", 0, Offset(start), Offset(end), isolation=PLAIN))]


def test_a_scan_goes_on_behind_an_accepted_gap_and_ends_where_it_should(golden_log: Make) -> None:
    golden = golden_log(copies=1)
    start, end = accept(golden)
    offsets = [row[0] for row in golden_rows("transactions", PLAIN)]
    assert read(golden.reader, 0, golden.folder.end()) == [offset for offset in offsets if not start <= offset < end]
    assert read(golden.reader, start, end - 1) == []
    assert read(golden.reader, 0, start + 1) == [offset for offset in offsets if offset < start]
    assert golden.reader.offset_for_time("t", 0, TimestampMs(2**60)) is None


def test_a_plan_leaves_an_accepted_gap_out(golden_log: Make) -> None:
    golden = golden_log(copies=1)
    start, end = accept(golden)
    splits = plan(golden.reader, {("t", 0): (Offset(0), Offset(golden.folder.end()))})
    planned = [part.offsets for split in splits for part in split.parts]
    assert (planned[0].start, planned[-1].end) == (0, golden.folder.end() - 1)
    assert not any(part.overlap(OffsetRange(Offset(start), Offset(end - 1))) for part in planned)
    assert plan(golden.reader, {("t", 0): (Offset(start), Offset(end))}) == []


@pytest.mark.parametrize("where", ["around", "within"])
def test_a_gateway_s_plan_says_the_same_of_an_accepted_gap(golden_log: Make, where: str) -> None:
    golden = golden_log(copies=1)
    start, end = accept(golden)
    extent = (Offset(0), Offset(golden.folder.end())) if where == "around" else (Offset(start), Offset(end))
    own = planned(golden.reader, {("t", 0): extent})
    assert own[0].whole.skipped == (Skipped(0, Offset(start), Offset(end)),)
    _, parts = plan_from(b"".join(plan_lines(PlanHead("", 0.0), own, None)), "gateway")
    assert parts == own
    pieces = [split for split, _ in own[0].cut(Groups(1_000, 1_000))]
    assert [split for split in pieces if split.skipped] == []


def test_offsets_that_came_back_are_read_before_the_view_knows_them(
    golden_log: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = golden_log(copies=1)
    start, end = accept(golden)
    old, view = golden.tiers.view.partition(golden.tiers.partition), golden.tiers.view
    golden.tiers.copy(golden.folder, start, end)
    old_view, calls, fresh = view.partition, [], view.require_fresh

    def freshened(tier_partition: int, max_age: float) -> None:
        if max_age == 0:
            calls.append(tier_partition)
        fresh(tier_partition, max_age)

    monkeypatch.setattr(view, "require_fresh", freshened)
    monkeypatch.setattr(view, "partition", lambda place: old_view(place) if calls else old)
    assert golden.reader.fetch("t", 0, start).offset == start
    assert calls


def test_the_same_gap_without_acceptance_is_an_error(golden_log: Make) -> None:
    golden = golden_log(copies=1)
    golden.local.local_start = golden.folder.bases[2]
    with pytest.raises(LogGap):
        golden.reader.fetch("t", 0, golden.folder.bases[1])


@pytest.mark.parametrize("command", ["digest", "consume"])
def test_a_command_names_a_gap_and_how_to_read_around_it_and_skips_it_once_accepted(
    command: str, golden_log: Make, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    golden = golden_log(copies=1)

    @contextmanager
    def opened(*arguments: object, **choices: object) -> Iterator[SearchedSource]:
        yield golden.reader

    monkeypatch.setattr(digest, "opened_source", opened)
    monkeypatch.setattr(consume, "opened_search", opened)
    _, start, end, *_ = golden.folder.bases
    golden.local.local_start = end
    settings = ["--bootstrap-server", "127.0.0.1:1", "--store", "file:///nowhere", "--isolation", "read_uncommitted"]
    for topic in ("t", "t:0"):
        assert run([command, topic, *settings]) == 4
        told = capsysbinary.readouterr().err.decode()
        assert f"start={start} end={end - 1}" in told
        assert f"t:0 --to {start} reads what is before it, --from {end} what is behind it" in told
        assert "readers skip it after tierstate accept-gap t:0" in told
    for around in ("--to", str(start)), ("--from", str(end)):
        assert run([command, "t:0", *settings, *around]) == 0
    accept(golden)
    assert run([command, "t", *settings]) == 0
    assert (b"was skipped" in capsysbinary.readouterr().err) is (command == "digest")
