from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tierstate.runtime.listener import Event, FactsApplied, RemoteFetched
from tierstate.runtime.metrics import COUNTERS, GAUGES, SECONDS, Metrics


def samples(metrics: Metrics) -> dict[str, float]:
    """Name and labels to value; the process's own left out."""
    return {
        sample.name + "".join(f"/{value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if not sample.name.startswith("process_") and not sample.name.endswith("_created")
    }


def any_event(kind: type[Any]) -> Any:
    return kind(**{field.name: 1 if field.type in ("int", "float") else "x" for field in fields(kind)})


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: str(kind.__name__))
def test_every_kind_of_event_counts(kind: type[Any]) -> None:
    metrics = Metrics()
    before = samples(metrics)
    metrics.listen(any_event(kind))
    assert samples(metrics) != before


def test_every_counter_is_counted_by_some_event() -> None:
    metrics = Metrics()
    for kind in get_args(Event):
        metrics.listen(any_event(kind))
    counted = samples(metrics)
    assert [name for name in COUNTERS if not any(key.split("/")[0] == name and counted[key] for key in counted)] == []


def test_bytes_and_facts_add_up() -> None:
    metrics = Metrics()
    for size in (100, 23):
        metrics.listen(RemoteFetched("key", size, 0.1))
    metrics.listen(FactsApplied(3, 7, 99))
    found = samples(metrics)
    assert found["tierstate_remote_fetch_bytes_total"] == 123
    assert found["tierstate_remote_fetch_requests_total"] == 2
    assert found["tierstate_remote_fetch_seconds_count"] == 2
    assert found["tierstate_facts_applied_total"] == 7


def test_two_processes_objects_do_not_share_a_registry() -> None:
    one, two = Metrics(), Metrics()
    one.listen(RemoteFetched("key", 5, 0.1))
    assert samples(two)["tierstate_remote_fetch_bytes_total"] == 0


def test_gauges_ask_at_every_scrape_and_not_before() -> None:
    metrics = Metrics()
    lag = [5.0]
    asked: list[float] = []

    def read() -> list[tuple[tuple[str, str], float]]:
        asked.append(lag[0])
        return [(("orders", "3"), lag[0])]

    metrics.gauge("tierstate_remote_copy_lag_bytes", read)
    assert asked == []
    assert samples(metrics)["tierstate_remote_copy_lag_bytes/3/orders"] == 5
    lag[0] = 7
    assert samples(metrics)["tierstate_remote_copy_lag_bytes/3/orders"] == 7


def test_a_gauge_that_fails_is_absent_and_the_others_stay() -> None:
    metrics = Metrics()

    def broken() -> list[tuple[tuple[str, ...], float]]:
        raise RuntimeError("the view is gone")

    metrics.gauge("tierstate_integrity_holds", broken)
    metrics.gauge("tierstate_fenced_facts", lambda: [((), 4)])
    found = samples(metrics)
    assert "tierstate_integrity_holds" not in found
    assert found["tierstate_fenced_facts"] == 4
    assert found["tierstate_unreadable_gauges"] == 1


def test_only_what_ends_in_total_is_announced_as_a_counter() -> None:
    """What may fall, as the number of facts that stand, is none: its fall would be taken for a restart."""
    metrics = Metrics()
    for name in ("tierstate_fenced_facts", "tierstate_copy_quota_waited_seconds_total"):
        metrics.gauge(name, lambda: [((), 4)])
    page = metrics.exposition().decode()
    assert "# TYPE tierstate_fenced_facts gauge" in page
    assert "# TYPE tierstate_copy_quota_waited_seconds_total counter" in page


def test_a_gauge_outside_the_table_is_refused() -> None:
    with pytest.raises(KeyError):
        Metrics().gauge("surprise", lambda: [])


def test_the_metrics_of_the_design_exist() -> None:
    design = """
        remote_copy_bytes_total remote_copy_lag_bytes remote_copy_lag_segments
        remote_delete_lag_segments remote_log_size_bytes apply_lag abandoned_segments
        fenced_facts_total terms_started_total lso_pinned_seconds uncopied_expires_in_seconds
        out_of_lineage_segments integrity_holds refused_partitions"""
    assert {f"tierstate_{name}" for name in design.split()} <= {*COUNTERS, *GAUGES}
    assert all(name.startswith("tierstate_") for name in (*COUNTERS, *GAUGES, *SECONDS))
    assert GAUGES["tierstate_refused_partitions"][1] == ("reason",)
