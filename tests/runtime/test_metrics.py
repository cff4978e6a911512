from __future__ import annotations

import re
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tierstate.runtime.listener import GatewayAnswered, RemoteFetched
from tierstate.runtime.metrics import COUNTED, COUNTERS, GAUGES, READERS, SECONDS, TALLIES, UNREADABLE, Metrics


def samples(metrics: Metrics) -> dict[str, float]:
    """Return name and labels to value; the process's own metrics are left out."""
    return {
        sample.name + "".join(f"/{value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if not sample.name.startswith("process_") and not sample.name.endswith("_created")
    }


def exposed_types(page: str) -> dict[str, str]:
    """Return the types of our metrics by a query's names, without those that the client adds (``_created``)."""
    pairs = re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE)
    return {name: kind for name, kind in pairs if not name.endswith("_created") and not name.startswith("process_")}


OTHER_UNITS = "ms millis milliseconds minutes hours days kb kib mb mib gb gib kilobytes megabytes percent"


def wrong_names(types: dict[str, str]) -> list[str]:
    """Return names against prometheus.io/docs/practices/naming: only counters end in ``_total``, units are base units
    and come last, and our histograms measure seconds."""

    def right(name: str, kind: str) -> bool:
        stem = name.removesuffix("_total").split("_")
        return (
            re.fullmatch(r"tierstate(_[a-z]+)+", name) is not None
            and name.endswith("_total") == (kind == "counter")
            and not set(stem) & set(OTHER_UNITS.split())
            and not set(stem[:-1]) & {"seconds", "bytes"}
            and (kind != "histogram" or stem[-1] == "seconds")
        )

    return [name for name, kind in types.items() if not right(name, kind)]


def any_event(kind: type[Any]) -> Any:
    return kind(**{field.name: 1 if field.type in ("int", "float") else "x" for field in fields(kind)})


def test_every_counter_is_counted_by_some_event() -> None:
    metrics = Metrics()
    for kind in (*COUNTED, GatewayAnswered):
        metrics.listen(any_event(kind))
    counted = samples(metrics)
    assert [name for name in COUNTERS if not any(key.split("/")[0] == name and counted[key] for key in counted)] == []


def test_bytes_and_requests_add_up() -> None:
    metrics = Metrics()
    for size in (100, 23):
        metrics.listen(RemoteFetched("key", size, 0.1))
    values = samples(metrics)
    assert values["tierstate_remote_fetch_bytes_total"] == 123
    assert values["tierstate_remote_fetch_seconds_count"] == 2


def test_sent_bytes_have_a_bounded_set_of_users_and_topics() -> None:
    metrics = Metrics()
    for number in range(READERS + 5):
        metrics.listen(GatewayAnswered(200, 100, 0.1, f"user {number}", "orders", "remote"))
    metrics.listen(GatewayAnswered(200, 7, 0.1, "user 0", "orders", "remote"))
    sent = "tierstate_gateway_sent_bytes_total/"
    of_users = {name: value for name, value in samples(metrics).items() if name.startswith(sent)}
    bytes_by_user = {name.rpartition("/")[2]: value for name, value in of_users.items()}
    assert len(bytes_by_user) == READERS + 1
    assert (bytes_by_user["user 0"], bytes_by_user["user 1"], bytes_by_user[""]) == (107, 100, 500)


def test_two_processes_objects_do_not_share_a_registry() -> None:
    one, two = Metrics(), Metrics()
    one.listen(RemoteFetched("key", 5, 0.1))
    assert samples(two)["tierstate_remote_fetch_bytes_total"] == 0


def test_gauges_ask_at_every_scrape_and_not_before() -> None:
    metrics = Metrics()
    lag = [5.0]
    calls: list[float] = []

    def read() -> list[tuple[tuple[str, str], float]]:
        calls.append(lag[0])
        return [(("orders", "3"), lag[0])]

    metrics.gauge("tierstate_remote_copy_lag_bytes", read)
    assert calls == []
    assert samples(metrics)["tierstate_remote_copy_lag_bytes/3/orders"] == 5
    lag[0] = 7
    assert samples(metrics)["tierstate_remote_copy_lag_bytes/3/orders"] == 7


def test_a_gauge_that_fails_is_absent_and_the_others_stay() -> None:
    metrics = Metrics()

    def broken() -> list[tuple[tuple[str, ...], float]]:
        raise RuntimeError("the view is gone")

    metrics.gauge("tierstate_integrity_holds", broken)
    metrics.gauge("tierstate_fenced_facts", lambda: [((), 4)])
    values = samples(metrics)
    assert "tierstate_integrity_holds" not in values
    assert values["tierstate_fenced_facts"] == 4
    assert values["tierstate_unreadable_gauges"] == 1


def test_every_metric_is_exposed_by_the_type_of_its_table_and_named_by_the_rules_of_prometheus() -> None:
    """A number that may fall, as that of live facts, is no counter: its fall would be taken for a restart."""
    metrics = Metrics()
    for name, (_, labels) in TALLIES.items():
        metrics.tally(name, partial(list, [(labels, 4)]))
    for name, (_, labels) in GAUGES.items():
        metrics.gauge(name, partial(list, [(labels, 4)]))
    types = exposed_types(metrics.exposition().decode())
    tables = {"counter": (*COUNTERS, *TALLIES), "histogram": SECONDS, "gauge": (*GAUGES, UNREADABLE)}
    assert types == {name: kind for kind, names in tables.items() for name in names}
    assert wrong_names(types) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tierstate_copies", "counter"),
        ("tierstate_copies_total", "gauge"),
        ("tierstate_silent_minutes", "gauge"),
        ("tierstate_lag_mib", "gauge"),
        ("tierstate_bytes_copied", "gauge"),
        ("tierstate_copy_time", "histogram"),
        ("copies_total", "counter"),
        ("tierstate_copyLag", "gauge"),
    ],
)
def test_a_name_against_the_rules_of_prometheus_is_seen(name: str, kind: str) -> None:
    assert wrong_names({name: kind}) == [name]


def test_a_gauge_outside_the_table_is_refused_and_a_tally_is_no_gauge() -> None:
    for name in ("surprise", *TALLIES, *COUNTERS):
        with pytest.raises(KeyError):
            Metrics().gauge(name, lambda: [])
    for name in ("surprise", *GAUGES, *COUNTERS):
        with pytest.raises(KeyError):
            Metrics().tally(name, lambda: [])
