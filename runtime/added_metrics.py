"""Add up the metrics of several processes into one exposition.

The last counts of a process that ended stay in the sums. A sum that fell would look like a counter that was reset, and
every rate over it would jump.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import generate_latest
from prometheus_client.core import Metric

GROWING = ("counter", "histogram")
_OF_ANY = ("process_start_time_seconds", "process_max_fds", "tierstate_build_info")
"""Gauges whose sum means nothing: the exposition has the smallest value."""


class _Families:
    """A registry, as `generate_latest` needs it."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposition(families: Iterable[Metric]) -> bytes:
    """Return these metric families in Prometheus' text format."""
    return generate_latest(_Families(families))


def added(processes: Sequence[Iterable[Metric]]) -> list[Metric]:
    """Return each family once, in order of first appearance, and each sample once, with the sum of all processes."""
    kinds: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for families in processes:
        for family in families:
            kinds.setdefault(family.name, family)
            totals = sums.setdefault(family.name, {})
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                if key not in totals:
                    totals[key] = sample.value
                elif family.name in _OF_ANY or sample.name.endswith("_created"):
                    totals[key] = min(totals[key], sample.value)
                else:
                    totals[key] += sample.value
    return [_family(kinds[name], totals) for name, totals in sums.items()]


def lasting(families: Iterable[Metric]) -> list[Metric]:
    """Return the families that stay in the sums after their process ended."""
    return [each for each in families if each.type in GROWING]


def _family(like: Metric, samples: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> Metric:
    family = Metric(like.name, like.documentation, like.type)
    for (name, labels), value in samples.items():
        family.add_sample(name, dict(labels), value)
    return family
