"""Why no agent tiers a topic, as `describe` and `delete-records` report it, also where no agent has ever led."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from tests.state.conftest import NOW, Build
from tests.twins.memory_broker import MemoryBroker
from tierstate.app.looking.partition_facts import EndTransaction, end_transaction, look_at, silent, why_untiered
from tierstate.cli.context import Context
from tierstate.cli.describe import SHOWN_OF_A_KIND, print_facts
from tierstate.cli.output import Output
from tierstate.rules.reasons import Reason
from tierstate.runtime.settings import Settings
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import LineageSettled
from tierstate.state.ids import BrokerId, TopicIdPartition
from tierstate.state.meaning import meaning
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.routing import LocalBounds


def why(name: str, include: list[str], **config: str) -> Reason | None:
    broker = MemoryBroker()
    broker.create_topic(name, config={key.replace("_", "."): value for key, value in config.items()})
    reason = why_untiered(broker, Settings.model_validate({"tiering": {"include": include}}), name)
    return reason.kind if reason else None


@pytest.mark.parametrize(
    ("name", "include", "config", "kind"),
    [
        ("orders", ["orders"], {}, None),
        ("orders", ["orders"], {"cleanup_policy": "compact"}, Reason.REFUSED_COMPACTED),
        ("orders", [], {"cleanup_policy": "compact"}, Reason.REFUSED_COMPACTED),
        ("orders", [".*"], {"remote_storage_enable": "true"}, Reason.REFUSED_KAFKA_TIERED),
        ("_tier-state", [".*"], {}, Reason.REFUSED_INTERNAL),
        ("__consumer_offsets", [".*"], {}, Reason.REFUSED_INTERNAL),
        ("orders", ["others"], {}, Reason.EXCLUDED),
    ],
)
def test_a_topic_that_no_agent_tiers_says_why_before_any_term(
    name: str, include: list[str], config: dict[str, str], kind: Reason | None
) -> None:
    assert why(name, include, **config) == kind


def test_settings_without_patterns_exclude_nothing() -> None:
    """A person who only looks need not know what the agents' settings choose."""
    assert why("orders", []) is None


def test_the_reason_is_shown_next_to_the_agents_status() -> None:
    broker = MemoryBroker()
    topic_id = broker.create_topic("orders", config={"cleanup.policy": "compact"})
    reason = why_untiered(broker, Settings(), "orders")
    bounds = broker.bounds("orders", 0)
    facts = look_at(meaning(TopicIdPartition(topic_id, 0), ()), bounds, "orders", reason)
    assert (facts.agent, facts.untiered_reason) == (None, "refused-compacted")
    assert facts.as_json()["untiered"] == "compacted topic: cleanup.policy=compact"


def test_a_transaction_that_the_agent_names_is_shown_with_the_commands_that_find_and_end_it() -> None:
    agent = {"open_transaction": {"producer_id": 7, "producer_epoch": 1, "start_offset": 42}}
    ways = end_transaction(agent, "orders", 3, "a:9092,b:9092")
    tool = "kafka-transactions.sh --bootstrap-server a:9092,b:9092"
    assert ways == EndTransaction(
        f"{tool} find-hanging --topic orders --partition 3",
        f"{tool} abort --topic orders --partition 3 --start-offset 42",
    )


@pytest.mark.parametrize("agent", [None, "agent for broker 1 did not answer", {}, {"open_transaction": None}])
def test_where_the_agent_names_no_transaction_there_is_nothing_to_end(agent: object) -> None:
    assert end_transaction(agent, "orders", 0, "a:9092") is None


def test_an_epoch_without_a_term_is_reported_with_the_remote_tier() -> None:
    build = Build()
    term = build.term(0, 0)
    view = build.view(build.leader(0, 0), build.started(1, 1, term), build.finished(2, 1, term))
    broker = MemoryBroker([1, 2])
    broker.create_topic("orders")
    assert look_at(view, broker.bounds("orders", 0), "orders").unconfirmed is None
    assert look_at(view, None, "orders").unconfirmed is None
    broker.elect("orders", 0, 2)
    text = look_at(view, broker.bounds("orders", 0), "orders").unconfirmed
    assert text is not None
    assert "the leader's epoch 1 has no term yet, the newest is of epoch 0" in text
    nothing = build.view(build.leader(0, 0))
    assert look_at(nothing, broker.bounds("orders", 0), "orders").unconfirmed is None


def test_the_agent_of_an_earlier_leader_is_not_asked() -> None:
    build = Build()
    view = build.view(build.leader(0, 0))
    assert view.leader is not None
    before, address = view.leader.broker_id, view.leader.management_address
    told = look_at(view, None, "orders", leader=before).agent
    assert told == silent(before, address)
    assert f"agent for broker {before} ({address}) did not answer" in str(told), "an agent by Fetch is beside no broker"
    agent = look_at(view, None, "orders", leader=BrokerId(7)).agent
    assert isinstance(agent, str)
    assert agent.startswith(
        "none for broker 7, which leads now, has begun a term: is one running there, over all its log folders, or one"
    )


def test_records_that_an_election_lost_are_reported_with_their_offsets() -> None:
    build = Build()
    first = build.term(0, 0)
    facts = [build.leader(0, 0), build.started(1, 1, first), build.finished(2, 1, first)]
    assert look_at(build.view(*facts), None, "orders").lost_branch is None
    (whole,) = build.view(*facts).readable
    lineage = Lineage.of((0, 0), (1, whole.offsets.start + 1))
    branch = look_at(build.view(*facts, build.leader(3, 1, lineage=lineage)), None, "orders").lost_branch
    assert branch is not None
    assert branch.startswith(f"{len(whole.offsets) - 1:,} offsets in 1 segment within {whole.offsets} are of a log")


def test_offsets_that_are_not_in_the_log_are_reported_with_the_cause() -> None:
    """DeleteRecords cuts the broker's epoch checkpoint: a segment that is copied later has no epoch below the cut."""
    build = Build()
    term = build.term(0, 0)
    cut = Lineage.of((0, 10))
    copied = build.started(1, 1, term), build.finished(2, 1, term, epochs=cut)
    view = build.view(build.leader(0, 0, lineage=cut), *copied)
    told = look_at(view, None, "orders").lost_branch
    assert told == (
        "10 offsets in 1 segment within 0..99 were deleted on the broker by DeleteRecords before they were copied: "
        "readers are not given them, retention takes them"
    )
    other = Lineage.of((3, 200))
    settled = LineageSettled(build.partition, build.fact_id(9), other, "ops", NOW)
    facts = [build.leader(0, 0), build.started(1, 1, term), build.finished(2, 1, term)]
    view = build.view(*facts, build.leader(3, 3, lineage=other), build.live(4, settled))
    told = look_at(view, None, "orders").lost_branch
    assert told is not None
    assert "are of another log, as a person settled" in told


def test_a_gap_is_offsets_with_both_ends_as_the_gateway_has_it() -> None:
    build = Build()
    term = build.term(0, 0)
    copies = [build.started(2, 1, term, 0, 9), build.finished(3, 1, term, 0, 9)]
    copies += [build.started(4, 2, term, 20, 29), build.finished(5, 2, term, 20, 29)]
    view = build.view(build.leader(0, 0), build.log_start(1, term, 0), *copies)
    facts = look_at(view, LocalBounds(Offset(30), Offset(40), Offset(40), LeaderEpoch(0)), "orders")
    assert facts.as_json()["gaps"] == ({"start": 10, "end": 19},)


def test_a_partition_is_printed_as_kafka_writes_it_and_in_commands_as_it_is_typed() -> None:
    build, out = Build(), io.StringIO()
    context = Context()
    context.output = Output(stdout=out)
    facts = look_at(build.view(build.leader(0, 0)), None, "orders")
    print_facts(context, replace(facts, lineage_unknown=True))
    assert out.getvalue().startswith(f"orders-3  (topic id {build.partition.topic_id}, term 0/0)\n")
    assert "tierstate settle orders:3\n" in out.getvalue()


def test_describe_says_that_an_agent_looks_at_a_copy_of_the_log_folders() -> None:
    build, out = Build(), io.StringIO()
    context = Context()
    context.output = Output(stdout=out)
    facts = look_at(build.view(build.leader(0, 0)), None, "orders")
    print_facts(context, replace(facts, agent={"copied_folders": "they are a copy"}))
    assert "  WRONG FOLDERS they are a copy\n" in out.getvalue()


def test_the_first_of_many_gaps_are_printed_and_the_others_are_counted() -> None:
    build, out = Build(), io.StringIO()
    context = Context()
    context.output = Output(stdout=out)
    gaps = tuple(OffsetRange(Offset(at), Offset(at)) for at in range(0, 2 * (SHOWN_OF_A_KIND + 1000), 2))
    print_facts(context, replace(look_at(build.view(build.leader(0, 0)), None, "orders"), gaps=gaps))
    lines = [line for line in out.getvalue().splitlines() if "GAP" in line]
    assert len(lines) == SHOWN_OF_A_KIND + 1
    assert lines[-1] == "  GAP  1,000 more, which --json lists"
