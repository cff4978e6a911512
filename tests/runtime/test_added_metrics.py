"""The counts of several processes are one sum, and it never falls."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

import tierstate
from tierstate.runtime.added_metrics import added, exposition, lasting
from tierstate.runtime.listener import GatewayAnswered
from tierstate.runtime.metrics import Metrics

ANN = {"tier": "remote", "topic": "orders", "user": "ann"}


def counted(*statuses: int) -> Metrics:
    metrics = Metrics()
    for status in statuses:
        metrics.listen(GatewayAnswered(status, 100, 0.2, "ann", "orders", "remote"))
    return metrics


def said(families: Iterable[Metric]) -> dict[str, float]:
    """Return the samples of an exposition, by name and labels."""
    text = exposition(families).decode()
    return {
        f"{sample.name}{sample.labels or ''}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_and_histograms_of_all_are_added_up_by_label() -> None:
    one, other = counted(200, 200, 404), counted(200)
    other.gauge("tierstate_gateway_connections", lambda: [((), 3)])
    one.gauge("tierstate_gateway_connections", lambda: [((), 4)])
    # as they come from another process
    values = said(added([one.families(), pickle.loads(pickle.dumps(other.families()))]))
    assert values["tierstate_gateway_answers_total{'status': '200'}"] == 3
    assert values["tierstate_gateway_answers_total{'status': '404'}"] == 1
    assert values[f"tierstate_gateway_sent_bytes_total{ANN}"] == 400
    assert values["tierstate_gateway_answer_seconds_count"] == 4
    assert values["tierstate_gateway_answer_seconds_bucket{'le': '0.25'}"] == 4
    assert values["tierstate_gateway_connections"] == 7


def test_metrics_of_a_single_process_stay_as_they_are() -> None:
    follows = Metrics()
    follows.gauge("tierstate_view_age_seconds", lambda: [(("0",), 1.5)])
    assert (
        said(added([follows.families(), counted().families()]))["tierstate_view_age_seconds{'tier_partition': '0'}"]
        == 1.5
    )


def test_times_and_limits_of_processes_are_not_added_up() -> None:
    one = said(counted().families())
    both = said(added([counted().families(), counted().families()]))
    for name in ("process_start_time_seconds", "process_max_fds"):
        assert abs(both[name] - one[name]) < 60
    assert both["process_resident_memory_bytes"] > 1.5 * one["process_resident_memory_bytes"]


def test_the_version_of_several_workers_is_one_process() -> None:
    version = f"tierstate_build_info{ {'version': tierstate.__version__} }"
    assert said(added([counted().families(), counted().families()]))[version] == 1


def test_counters_of_an_ended_process_count_and_its_gauges_do_not() -> None:
    gone = counted(200, 200)
    gone.gauge("tierstate_gateway_connections", lambda: [((), 4)])
    values = said(added([lasting(gone.families()), counted(200).families()]))
    assert values["tierstate_gateway_answers_total{'status': '200'}"] == 3
    assert "tierstate_gateway_connections" not in values
