"""The reasons why something is not copied, trimmed, expired: each is produced on a real broker.

Each scenario declares its reasons; a reason that none of them declares fails `test_every_reason.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from tests.commits import commit
from tests.leader.real import RECORD, eventually
from tests.scenarios.reasons_world import ACTS, Desk, NewReasonTopic, ReasonTopic, patch, shows, transaction
from tests.servers.frozen_broker import freeze, thaw
from tierstate.rules.reasons import Reason
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import AccessDenied
from tierstate.state.facts import LeaderElected, OrderKind, ReaderLease
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.storage.directory import DirectoryStore

pytestmark = pytest.mark.kafka

# --- copy ------------------------------------------------------------------------------------------------------------


@shows(Reason.ALL_COPIED, Reason.ONLY_ACTIVE, Reason.RETENTION_KEEPS)
def test_all_is_well(topic_for: NewReasonTopic) -> None:
    topic = topic_for(retention_ms="3600000", retention_bytes="100000000")
    bases = topic.roll()
    with topic.desk() as desk:
        last, active = bases[-1] - 1, bases[-1]
        copied = f"every rolled segment is copied, up to offset {last}; the active one begins at {active} and has"
        desk.says("copied", Reason.ALL_COPIED, rf"{copied} [\d,]+ bytes")
        only = rf"only the active segment is left on the broker, from {active} on, [\d,]+ bytes"
        desk.says("trimmed", Reason.ONLY_ACTIVE, only)
        oldest = rf"retention keeps the oldest segment, 0\.\.{bases[1] - 1}: \d+ [ms][^:]* old of 1 h"
        desk.says("expired", Reason.RETENTION_KEEPS, rf"{oldest}, [\d,]+ bytes in both tiers of 100,000,000")


@shows(Reason.OPEN_TRANSACTION)
def test_a_transaction_is_open(topic_for: NewReasonTopic) -> None:
    topic = topic_for()
    producer = transaction(topic, 2_000)
    end = topic.bases()[1] - 1
    with topic.desk() as desk:
        where = rf"the last stable offset 0 is not past segment 0\.\.{end} of [\d,]+ bytes"
        sentence = rf"a transaction is open: {where}, for \d+ s at least"
        desk.says("copied", Reason.OPEN_TRANSACTION, rf"{sentence}(; .*)?")
        eventually(lambda: desk.work().open_transaction)
        whose = r"it is of producer \d+, epoch 0, begins at offset 0 and is open since \S+Z at the latest"
        whose += r", its producer's last record here is of \S+Z"
        desk.says("copied", Reason.OPEN_TRANSACTION, f"{sentence}; {whose}".replace(r"\d+ s", r"[1-9]\d* s"))
        producer.abort_transaction(30)
        eventually(lambda: desk.work().not_copied_reason == Reason.ALL_COPIED)
        assert desk.status.lso_pinned_s == 0


@pytest.mark.slow
@shows(Reason.NOT_REPLICATED, Reason.BROKER_AWAY)
def test_a_replica_is_slow_and_another_broker_leads(kafka_three: KafkaSandbox, topic_name: str, tmp_path: Path) -> None:
    topic = ReasonTopic(kafka_three, topic_name[-80:].strip("-"), tmp_path / "store", tier_partitions=1)
    topic.create()
    with topic.desk() as looking:
        leader = topic.leads(looking.job.broker)
    assert leader is not None
    others = [index for index in range(3) if index != leader]
    with topic.desk(others[0]) as follower:
        follower.says("copied", Reason.BROKER_AWAY, r".*NOT_LEADER_OR_FOLLOWER.*|.*does not lead.*")
    with topic.desk(leader) as desk:
        (tiers,) = desk.job.broker.control.topic(topic.spec.name).partitions
        # one of three brokers leads neither: with two tier partitions, each could have one of the others
        frozen = next(index for index in others if kafka_three.brokers[index].address.node_id != tiers.leader)
        desk.work()  # begins the term: with a frozen replica in sync no fact would be acknowledged, until it is dropped
        freeze(kafka_three, frozen)
        try:
            producer = topic.producer(acks="1")
            for number in range(4_000):
                producer.produce(topic.name, RECORD % number, partition=0)
                producer.poll(0)
            assert producer.flush(30) == 0
            where = r"high watermark \d+ is not past segment \d+\.\.\d+ of [\d,]+ bytes"
            desk.says("copied", Reason.NOT_REPLICATED, rf"{where}: a replica in sync has no more")
        finally:
            thaw(kafka_three, frozen)


@shows(Reason.COPY_LAG, Reason.NO_LOG_START)
def test_segments_are_young_and_the_first_term_was_cut_short(topic_for: NewReasonTopic) -> None:
    topic = topic_for({"copy": {"lag": 1000}})
    end = topic.roll()[1] - 1
    with topic.desk() as desk:
        context, epoch = desk.job.leader.context, LeaderEpoch(0)
        lineage = context.log.snapshot(desk.partition, topic.name).lineage
        address, begun = context.management_address, desk.fact_id()
        desk.say(
            LeaderElected(
                desk.partition, topic.name, epoch, begun, desk.broker_id, address, lineage, Offset(0), desk.now()
            )
        )  # its process died before it wrote the log start, and the next segment is not to be copied yet
        young = rf"segment 0\.\.{end} is \d+ [ms].* old, younger than copy\.lag 16 m 40 s: in \d+ [ms].*"
        desk.says("copied", Reason.COPY_LAG, young)
        desk.says("trimmed", Reason.NO_LOG_START, "no term has written a log start yet")


@shows(Reason.NOT_COPIED, Reason.NOTHING_REMOTE)
def test_a_term_began_and_nothing_is_copied_yet(topic_for: NewReasonTopic) -> None:
    topic = topic_for({"copy": {"lag": 86_400}})
    topic.roll()
    with topic.desk() as desk:
        desk.begin()
        waiting = r"offset 0 is not copied yet: \d+ rolled segments of [\d,]+ bytes wait for it"
        desk.says("trimmed", Reason.NOT_COPIED, waiting)
        nothing = "nothing is in the remote tier from the log start 0 on"
        desk.says("expired", Reason.NOTHING_REMOTE, nothing)


@shows(Reason.NO_EPOCH)
def test_neither_the_brokers_checkpoint_nor_a_batch_has_the_epoch(topic: ReasonTopic) -> None:
    bases = topic.bases()
    checkpoint = topic.folder / "leader-epoch-checkpoint"
    with topic.desk() as desk, topic.log(0).open("r+b", buffering=0) as log:
        checkpoint.write_text(f"0\n1\n0 {bases[1]}\n")
        os.pwrite(log.fileno(), b"\xff" * 4, 12)  # the batch's leader epoch, which no checksum covers: none
        sentence = f"no leader epoch of offset 0 is known: the broker's checkpoint begins at {bases[1]}, "
        desk.says("copied", Reason.NO_EPOCH, f"{sentence}and the batch shows none that fits")
        os.pwrite(log.fileno(), b"\0" * 4, 12)
        eventually(lambda: desk.work().not_copied_reason == Reason.ALL_COPIED)


@shows(Reason.NO_LOCAL_SEGMENT)
def test_a_file_is_missing_from_the_folder(topic: ReasonTopic) -> None:
    bases = topic.bases()
    away = topic.log(0).rename(topic.folder / "away")
    with topic.desk() as desk:
        sentence = f"offset 0 is in no local segment: the next one begins at {bases[1]}"
        desk.says("copied", Reason.NO_LOCAL_SEGMENT, sentence)
    away.rename(topic.log(0))


# --- trim ------------------------------------------------------------------------------------------------------------


@shows(Reason.LOCAL_RETENTION)
def test_local_retention_keeps_what_is_there(topic_for: NewReasonTopic) -> None:
    topic = topic_for(local_retention_ms="3600000", local_retention_bytes="100000000", retention_ms="7200000")
    end = topic.roll()[1] - 1
    with topic.desk() as desk:
        kept = rf"local retention keeps the oldest local segment, 0\.\.{end}: it is \d+ [ms][^:]* old, not older than "
        size = r"[\d.]+ [KM]?i?B"
        without = rf"segments go whole, and without it {size} of {size} would stay, less than "
        limits = rf"local\.retention\.ms, 1 h; {without}local\.retention\.bytes, 95\.4 MiB"
        desk.says("trimmed", Reason.LOCAL_RETENTION, kept + limits)


@shows(Reason.TRIM_DISABLED)
def test_an_archive_is_not_trimmed(topic: ReasonTopic) -> None:
    with topic.desk(enabled=False) as desk:
        desk.says("trimmed", Reason.TRIM_DISABLED, r"trim\.enabled=false, an archive: only Kafka's retention .*")
        assert topic.bases()[0] == 0


@shows(Reason.TRIM_DELAY)
def test_copies_are_young(topic: ReasonTopic) -> None:
    end = topic.bases()[1] - 1
    with topic.desk(delay=900) as desk:
        sentence = rf"segment 0\.\.{end} was copied \d+ [ms].* ago, within trim\.delay 15 m: it goes in \d+ [ms].*"
        desk.says("trimmed", Reason.TRIM_DELAY, sentence)


@shows(Reason.GROUP_HOLDS)
def test_a_consumer_group_lags(topic_for: NewReasonTopic) -> None:
    topic = topic_for()
    bases = topic.roll(3)
    for group, offset in (("slow", 5), ("slower", 3)):
        commit(topic.sandbox.client_config, f"{group}-{topic.name}", topic.name, 0, offset)
    with topic.desk() as desk:
        asked_at = r"\(asked [\dTZ:-]+\)"
        sentence = rf"consumer group slower-{topic.name} still reads there, at offset 3 {asked_at}, and 1 more group"
        desk.says("trimmed", Reason.GROUP_HOLDS, rf"{sentence}: [\d,]+ bytes below {bases[-1]} could go otherwise")


@shows(Reason.GROUPS_UNKNOWN)
def test_groups_may_be_hidden(topic: ReasonTopic) -> None:
    with topic.denied(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE), topic.desk() as desk:
        sentence = "consumer groups could not be listed completely: these credentials lack DESCRIBE on the cluster, .*"
        desk.says("trimmed", Reason.GROUPS_UNKNOWN, sentence)


@shows(Reason.UNCLEAN_ELECTIONS)
def test_unclean_elections_are_allowed(topic_for: NewReasonTopic) -> None:
    topic = topic_for(unclean_leader_election_enable="true")
    topic.roll()
    with topic.desk() as desk:
        sentence = "unclean.leader.election.enable=true on the topic, and trim.allow_unclean is off"
        desk.says("trimmed", Reason.UNCLEAN_ELECTIONS, sentence.replace(".", r"\."))


# --- expire ----------------------------------------------------------------------------------------------------------


@shows(Reason.ORDER_WAITS)
def test_an_order_asks_for_more_than_there_is(desk: Desk) -> None:
    order = desk.order(OrderKind.DELETE_RECORDS, before=10**9)
    waits = rf"order {order.id} waits: 1000000000 is above the high watermark \d+; "
    desk.says("expired", Reason.ORDER_WAITS, waits + ".*")


@shows(Reason.ORDER_LOST)
def test_an_order_does_not_say_which_records_it_meant(desk: Desk) -> None:
    order = desk.order(OrderKind.DELETE_RECORDS, before=5, version=1)
    sentence = f"order {order.id}: an older version gave it, without saying for which records: give it again; .*"
    desk.says("expired", Reason.ORDER_LOST, sentence)


@shows(Reason.READERS_GRACE)
def test_readers_get_their_grace(topic_for: NewReasonTopic) -> None:
    topic = topic_for({"expire": {"grace": 1000}})
    bases = topic.roll()
    with topic.desk() as desk:
        desk.work()
        desk.order(OrderKind.DELETE_RECORDS, before=bases[1])
        sentence = r"1 condemned segment keeps its objects; segment \S+: the grace for readers ends in \d+ [ms].*"
        desk.says("expired", Reason.READERS_GRACE, sentence)


@shows(Reason.LEASED)
def test_a_reader_holds_a_lease(topic_for: NewReasonTopic) -> None:
    topic = topic_for({"expire": {"grace": 0}})
    bases = topic.roll()
    with topic.desk() as desk:
        desk.work()
        until = TimestampMs(desk.now() + 3_600_000)
        lease = ReaderLease(desk.partition, desk.fact_id(), OffsetRange(Offset(0), Offset(9)), "spark-7", until)
        desk.say(lease)
        desk.order(OrderKind.DELETE_RECORDS, before=bases[1])
        held = rf"segment \S+: lease {lease.id} of spark-7 is on 0\.\.9, until \d{{4}}-\d\d-\d\dT[\d:]+Z"
        desk.says("expired", Reason.LEASED, f"1 condemned segment keeps its objects; {held}")


@shows(Reason.NOT_ARCHIVED)
def test_the_archive_does_not_have_the_delete_yet(topic_for: NewReasonTopic) -> None:
    topic = topic_for({"expire": {"grace": 0}})
    topic.archived_to = lambda tier_partition: Position(0)
    bases = topic.roll()
    with topic.desk() as desk:
        desk.work()
        desk.order(OrderKind.DELETE_RECORDS, before=bases[1])
        sentence = r"segment \S+: that it is to be deleted is not archived yet"
        desk.says("expired", Reason.NOT_ARCHIVED, f"1 condemned segment keeps its objects; {sentence}")
        assert list(topic.store_folder.rglob(f"{bases[0]:020d}-*.log"))


class LockedStore(DirectoryStore):
    """A store with an object lock: it accepts objects, and deletes none."""

    def delete(self, key: str) -> None:
        raise AccessDenied("the object is locked", key=key)


@shows(Reason.REMOVAL_FAILED)
def test_the_store_deletes_nothing(topic_for: NewReasonTopic) -> None:
    topic = topic_for({"expire": {"grace": 0}})
    topic.given = LockedStore(topic.store_folder)
    bases = topic.roll()
    with topic.desk() as desk:
        desk.work()
        desk.order(OrderKind.DELETE_RECORDS, before=bases[1])
        sentence = r"1 condemned segment keeps its objects; segment \S+: its removal failed and is tried again later"
        desk.says("expired", Reason.REMOVAL_FAILED, rf"{sentence}: the object is locked\. key=\S+")


# --- orders, refusals ------------------------------------------------------------------------------------------------


@shows(Reason.PAUSED, Reason.DISABLED)
def test_an_operator_ordered_it(topic: ReasonTopic) -> None:
    with topic.desk() as desk:
        desk.order(OrderKind.PAUSE)
        by = r"ordered by ops@desk at \d{4}-\d\d-\d\dT[\d:]+Z: `tierstate resume` takes it back"
        for act in ACTS:
            desk.says(act, Reason.PAUSED, f"pause {by}")
        desk.order(OrderKind.DISABLE_KEEP)
        for act in ("copied", "trimmed"):
            desk.says(act, Reason.DISABLED, f"disable-keep {by}")


@shows(Reason.EXCLUDED)
def test_the_topic_was_excluded_later_and_what_is_remote_still_expires(topic_for: NewReasonTopic) -> None:
    topic = topic_for(retention_ms="7200000")
    topic.roll()
    with topic.desk() as desk:
        assert desk.work().copied_to is not None
    topic.sections = {"tiering": {"exclude": [topic.name]}}
    topic.append(4_000)
    with topic.agent() as job:
        topic.seen(job)
        job.run_once()
        (status,) = job.leader.board.all()
        sentence = f"excluded: tiering.include and tiering.exclude do not choose {topic.name}"
        assert (status.not_copied, status.not_copied_reason) == (sentence, Reason.EXCLUDED)
        assert status.not_trimmed_reason == Reason.EXCLUDED
        assert (status.refused, status.not_expired_reason) == (None, Reason.RETENTION_KEEPS)
    topic.sections["tiering"]["topics"] = {topic.name: {"retention": 0}}
    with topic.agent() as job:
        topic.seen(job)
        job.run_once()
        assert (topic.seen(job).log_start or 0) > 0, "retention still deletes what is remote"


@shows(Reason.REFUSED_COMPACTED)
def test_the_topic_is_compacted(topic_for: NewReasonTopic) -> None:
    topic = topic_for(cleanup_policy="compact,delete")
    with topic.desk() as desk:
        for act in ACTS:
            desk.says(act, Reason.REFUSED_COMPACTED, "compacted topic: cleanup.policy=compact,delete")
        assert desk.status.refused_reason == Reason.REFUSED_COMPACTED
        assert topic.seen(desk.job).term is None


@shows(Reason.REFUSED_KAFKA_TIERED)
def test_kafka_tiers_the_topic_itself(topic_for: NewReasonTopic) -> None:
    topic = topic_for(remote_storage_enable="true")
    with topic.desk() as desk:
        sentence = "remote.storage.enable=true: Kafka tiers it itself"
        for act in ACTS:
            desk.says(act, Reason.REFUSED_KAFKA_TIERED, sentence)
        assert desk.status.refused == sentence


@shows(Reason.REFUSED_INTERNAL)
def test_the_patterns_name_an_internal_topic(topic_for: NewReasonTopic) -> None:
    topic = topic_for()
    tiers = topic.spec.name
    topic.sections = {"tiering": {"include": [topic.name, tiers]}}
    with topic.agent() as job:
        job.run_once()
        statuses = {(each.topic, each.not_copied, each.refused_reason) for each in job.leader.board.all()}
    sentence = f"internal topic: {tiers} is never tiered"
    assert statuses >= {(tiers, sentence, Reason.REFUSED_INTERNAL)}
    assert {each[2] for each in statuses if each[0] == topic.name} == {None}


@shows(Reason.REFUSED_FORMAT)
def test_a_segment_has_an_older_message_format(topic: ReasonTopic) -> None:
    """Current brokers do not write this format, so the test changes the version of the first batch on the disk."""
    end = topic.bases()[1] - 1
    patch(topic.log(0), 16, b"\x01")
    with topic.desk() as desk:
        file = rf"file=\S+/{0:020d}\.log offsets=0\.\.{end} magic=1"
        status = desk.says("copied", Reason.REFUSED_FORMAT, rf"message format older than v2\. {file}")
        assert status.refused_reason == Reason.REFUSED_FORMAT
        assert (status.consecutive_failures, topic.seen(desk.job).segments) == (0, {})
