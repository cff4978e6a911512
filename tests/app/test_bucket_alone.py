"""Reading with nothing but the bucket: which view it is, how old, what it shows, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.kept import Kept, damage
from tests.fetch.two_tiers import NOW, Row, golden_rows
from tierstate.app.looking.partition_facts import NOT_ASKED, look_at_past
from tierstate.app.opening.open import open_connection
from tierstate.app.opening.partitions import find_partition
from tierstate.cli.context import Context
from tierstate.cli.main import run
from tierstate.follower.archives import begin_history, say_parted
from tierstate.follower.digests import live_set_digest
from tierstate.follower.time_travel import Target, replay_archive
from tierstate.runtime.listener import ChoreFailed
from tierstate.runtime.settings_load import settings_from
from tierstate.schemas.codec import decode_fact
from tierstate.state.epochs import Lineage
from tierstate.state.errors import (
    CorruptData,
    HistoryBroken,
    InvalidRequest,
    LineageUnconfirmed,
    LogGap,
    OffsetOutOfRange,
    SegmentExpired,
    TierStateLost,
    UnknownTopic,
)
from tierstate.state.facts import DeleteReason, LeaderElected, SegmentDeleteStarted
from tierstate.state.ids import BrokerId, FactId, TopicId
from tierstate.state.offsets import Offset, Position, TimestampMs
from tierstate.state.routing import Isolation
from tierstate.state.view import MemoryView

OTHER_TOPIC = TopicId.of(b"another-topic-id")


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Return a bucket with three segments. A checkpoint follows the first one, and the archive the second one."""
    made = Kept(tmp_path / "store").begin().copy(0).checkpoint().copy(1).archive()
    return made.copy(2)


def up_to(kept: Kept, segments: int, isolation: Isolation = Isolation.READ_COMMITTED) -> list[Row]:
    end = kept.folder.bases[segments]
    return [row for row in golden_rows(kept.case, isolation) if row[0] < end]


@pytest.mark.parametrize("isolation", Isolation)
def test_what_was_archived_is_read_exactly_and_what_was_said_later_is_not(kept: Kept, isolation: Isolation) -> None:
    assert kept.read(isolation=isolation) == up_to(kept, 2, isolation)
    kept.archive()
    assert kept.read(isolation=isolation) == up_to(kept, 3, isolation)


def test_how_old_the_view_is_is_told_before_anything_is_read(kept: Kept) -> None:
    kept.clock.advance(30 * 60 - 1)
    with kept.connection() as connection:
        view = connection.view()
        (age,) = kept.ages
        assert (age.cluster_id, age.tier_state_topic_id, age.history) == ("cluster", kept.tier_topic_id, 0)
        assert age.age_ms == 30 * 60_000
        assert age.newest_at == kept.clock.now_ms() - age.age_ms
        assert view.replays[0].position < kept.topic.end(0)
    assert "it is of 2023-11-14T22:13:22Z, 30 m ago" in str(age)
    assert "what came after that is not known" in str(age)
    assert json.loads(json.dumps(age.as_json()))["source"] == "bucket"


def test_a_checkpoint_alone_is_enough(kept: Kept) -> None:
    shutil.rmtree(kept.files("archive")[0].parent)
    assert kept.read() == up_to(kept, 1)
    assert kept.ages[0].age_ms == 2000


def test_an_archive_alone_is_enough(kept: Kept) -> None:
    shutil.rmtree(kept.files("checkpoint")[0].parent)
    assert kept.read() == up_to(kept, 2)


def test_a_damaged_checkpoint_is_passed_over_and_named(kept: Kept) -> None:
    kept.checkpoint()
    newest = kept.files("checkpoint")[-1]
    damage(newest)
    assert kept.read() == up_to(kept, 2)
    (failed,) = [event for event in kept.heard if isinstance(event, ChoreFailed)]
    assert newest.name in failed.error


def test_without_checkpoints_and_archive_there_is_no_view(kept: Kept) -> None:
    shutil.rmtree(kept.path / "_tierstate")
    with pytest.raises(InvalidRequest, match="neither checkpoints nor an archive"):
        kept.read()


def test_a_damaged_archive_is_an_error_that_names_the_piece_and_not_an_older_view(kept: Kept) -> None:
    piece = kept.files("archive")[-1]
    damage(piece)
    with pytest.raises(CorruptData, match=piece.name):
        kept.read()


def test_damage_below_the_checkpoint_does_not_matter(kept: Kept) -> None:
    kept.archive().checkpoint()
    for piece in kept.files("archive"):
        damage(piece)
    assert kept.read() == up_to(kept, 3)


def test_pieces_that_are_missing_after_the_checkpoint_are_an_error(kept: Kept) -> None:
    kept.archive()
    kept.files("archive")[0].unlink()
    with pytest.raises(CorruptData, match="missing"):
        kept.read()


def test_each_position_of_the_archive_is_the_view_that_stood_there(kept: Kept) -> None:
    end = kept.archive().topic.end(0)
    for position in range(end + 1):
        wanted = MemoryView(decode_fact, 1)
        replay_archive(kept.shelf, wanted, Target(Position(position)))
        with kept.connection(as_of=f"0/{position}") as connection:
            view = connection.view()
            assert live_set_digest(view.entries()).hexdigest() == live_set_digest(wanted.entries()).hexdigest()
            assert view.replays[0].position == position


def test_a_time_is_the_view_of_what_was_said_before_it(kept: Kept) -> None:
    began = kept.clock.now_ms() - 3000
    kept.archive()
    ends = [kept.folder.bases[number] for number in (0, 1, 2, 3)]
    for seconds, segments in ((1, 0), (2, 1), (3, 2), (4, 3)):
        with kept.connection(as_of=f"@{began + seconds * 1000}") as connection:
            reader = connection.reader(connection.view())
            assert reader.extent("t", 0) == (0, ends[segments])
        assert kept.ages[-1].sure == (seconds < 4)
    assert "may not be archived" in str(kept.ages[-1])


def test_a_past_that_is_not_kept_is_refused(kept: Kept) -> None:
    for moment, why in (("0/999", "does not hold this position"), ("7/1", "no such tier-state partition")):
        with pytest.raises(InvalidRequest, match=why):
            kept.read(as_of=moment)
    with pytest.raises(InvalidRequest, match="not a time"):
        kept.read(as_of="yesterday")
    shutil.rmtree(kept.files("archive")[0].parent)
    with pytest.raises(InvalidRequest, match="there is no archive"):
        kept.read(as_of="@-1s")


def test_where_nothing_was_ever_said_no_archive_is_missing(tmp_path: Path) -> None:
    silent = Kept(tmp_path / "store").checkpoint()
    for moment in ("", "@-1s"):
        with silent.connection(as_of=moment) as connection:
            assert connection.view().partitions() == []
            assert "no fact is in it" in str(silent.ages[-1])


def test_an_object_that_expired_since_is_named_with_its_segment(kept: Kept) -> None:
    lost = kept.copied[0]
    kept.archive()
    before = f"0/{kept.topic.end(0)}"
    kept.tiers.say(SegmentDeleteStarted(lost, kept.tiers.term, 90, DeleteReason.RETENTION_TIME, NOW))
    kept.tiers.start_log_at(lost.offsets.end + 1)
    kept.archive()
    for path in kept.path.glob(f"t-*/0/*{lost.segment_id}*"):
        path.unlink()
    assert kept.read() == [row for row in up_to(kept, 3) if row[0] > lost.offsets.end]
    with pytest.raises(SegmentExpired, match=str(lost.segment_id)) as refused:
        kept.read(as_of=before)
    assert str(refused.value.facts["object_key"]).startswith("t-")
    with kept.connection(as_of=before) as connection:  # what is still there is read
        reader = connection.reader(connection.view())
        assert reader.fetch("t", 0, lost.offsets.end + 1).data


def test_a_log_ends_where_the_remote_tier_ends_and_a_gap_is_an_error(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "store").begin().copy(0, 2).archive()
    bases = kept.folder.bases
    with kept.connection() as connection:
        view = connection.view()
        reader = connection.reader(view)
        assert reader.extent("t", 0) == (0, bases[3])
        with pytest.raises(LogGap) as gap:
            list(reader.scan("t", 0, 0, bases[3]))
        assert (gap.value.start, gap.value.end) == (bases[1], bases[2] - 1)
        with pytest.raises(OffsetOutOfRange):
            reader.scan("t", 0, 0, bases[3] + 1)
        facts = look_at_past(view.partition(kept.tiers.partition), "t")
        assert [(each.start, each.end) for each in facts.gaps] == [(bases[1], bases[2] - 1)]
        assert facts.agent == NOT_ASKED
        assert facts.high_watermark is None
    asked = ["describe", "t:0", "--source", "bucket", "--store", kept.store.description]
    assert run(asked) == 4, "as with brokers"
    assert run(asked, Context(as_json=True)) == 4


def test_what_the_newest_term_does_not_have_in_its_lineage_is_not_shown(kept: Kept) -> None:
    """An unclean election whose agent has spoken: the copied branch ends where the new leader's log left it."""
    cut = kept.folder.bases[1] + 3
    kept.tiers.elect(Lineage.of((0, 0), (7, cut)))
    kept.archive()
    assert kept.read() == [row for row in up_to(kept, 3) if row[0] < cut]


@pytest.mark.parametrize(("lost", "error"), [("/leader/", LineageUnconfirmed), ("/log-start/", TierStateLost)])
def test_segments_that_facts_do_not_place_are_an_error_and_not_an_empty_log(
    kept: Kept, lost: str, error: type[Exception]
) -> None:
    kept.topic.append(0, next(each for each in kept.keys if lost in each), None)
    kept.archive()
    with pytest.raises(error, match="segments are known, but no"):
        kept.read()


@pytest.mark.parametrize("younger", [True, False])
def test_of_two_topics_of_one_name_the_one_elected_last_has_it_and_both_go_by_their_ids(
    kept: Kept, younger: bool
) -> None:
    kept.archive()
    first = kept.read()
    again = kept.of(OTHER_TOPIC)
    at = TimestampMs(NOW + (1 if younger else -1))
    lineage = kept.folder.lineage()
    id = FactId.of(b"another election")
    again.say(
        LeaderElected(again.partition, "t", lineage.entries[-1].epoch, id, BrokerId(1), "", lineage, Offset(0), at)
    )
    kept.archive()
    with kept.connection() as connection:
        assert [each.name for each in connection.control.topics()] == ["t"]
        assert find_partition(connection.control, "t", 0).topic_id == (OTHER_TOPIC if younger else kept.topic_id)
    assert kept.read() == ([] if younger else first)
    assert kept.read(str(kept.topic_id)) == first
    assert kept.read(str(OTHER_TOPIC)) == []


def test_an_unknown_topic_is_unknown_also_by_an_id(kept: Kept) -> None:
    for name in ("nothing", str(OTHER_TOPIC)):
        with pytest.raises(UnknownTopic):
            kept.read(name)


def test_of_several_tier_state_topics_one_must_be_named(kept: Kept, tmp_path: Path) -> None:
    other = Kept(tmp_path / "store", "AAAAAAAAAAAAAAAAAAAAAw", OTHER_TOPIC).begin().copy(0).archive()
    with pytest.raises(InvalidRequest, match="several tier-state topics") as refused:
        kept.read()
    assert {kept.tier_topic_id, other.tier_topic_id} <= set(
        str(refused.value).replace(",", " ").replace("=", " ").split()
    )
    assert kept.read(topic_id=kept.tier_topic_id) == up_to(kept, 2)
    assert kept.read(topic_id=other.tier_topic_id) == up_to(kept, 1)
    with pytest.raises(InvalidRequest, match="nothing of this tier-state topic"):
        kept.read(topic_id="AAAAAAAAAAAAAAAAAAAAAA")


def test_a_history_that_parted_is_read_only_by_its_number(kept: Kept) -> None:
    say_parted(kept.store, kept.tier_topic_id, 0, kept.clock.now_ms(), "its newest records are gone")
    with pytest.raises(HistoryBroken, match=r"view\.history"):
        kept.read()
    assert kept.read(history=0) == up_to(kept, 2)
    assert "its newest records are gone" in str(kept.ages[-1])
    begin_history(kept.store, kept.tier_topic_id, 1, kept.clock.now_ms(), "a backup", [])
    with pytest.raises(UnknownTopic):
        kept.read()  # nothing is archived of the history that counts now
    with pytest.raises(InvalidRequest, match="has not begun"):
        kept.read(history=2)


def test_nothing_in_the_bucket_is_written_or_changed(kept: Kept) -> None:
    def state() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in kept.path.rglob("*") if path.is_file()
        }

    before = state()
    kept.read()
    assert state() == before


def test_what_needs_a_broker_says_so_and_asks_none(kept: Kept) -> None:
    from tierstate.app.opening.connection import Connection

    with kept.connection() as connection, Connection(connection.settings) as refused:
        needs: list[Callable[[], object]] = [lambda: refused.broker, lambda: refused.topic, lambda: refused.view()]
        for need in needs:
            with pytest.raises(InvalidRequest, match=r"view\.source=bucket"):
                need()


@pytest.mark.extended
def test_a_time_is_found_in_what_is_remote(kept: Kept) -> None:
    rows = up_to(kept, 2, Isolation.READ_UNCOMMITTED)
    with kept.connection() as connection:
        reader = connection.reader(connection.view())
        for time in sorted({row[1] + more for row in rows for more in (0, 1)}):
            wanted = next(((row[0], row[1]) for row in rows if row[1] >= time), None)
            assert reader.offset_for_time("t", 0, time) == wanted


def test_a_past_is_asked_of_the_bucket_only(kept: Kept) -> None:
    for setting in ({"view.as_of": "@-1h"}, {"view.topic_id": kept.tier_topic_id}, {"view.history": 0}):
        with pytest.raises(InvalidRequest, match="--source bucket is needed"):
            open_connection(settings_from({"store.url": kept.store.description, **setting}))
