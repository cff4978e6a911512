"""Metrics of several processes as one exposition: what each counts, added up.

A process that is gone goes on counting with what it last told: a sum that fell would look like a counter that began
anew, and every rate over it would jump.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import generate_latest
from prometheus_client.core import Metric

GROWING = ("counter", "histogram")
_OF_ANY = ("process_start_time_seconds", "process_max_fds", "tierstate_build_info")
"""Gauges that mean nothing when added up: the least of all."""


class _Families:
    """As `generate_latest` asks a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposition(families: Iterable[Metric]) -> bytes:
    """Prometheus' text format."""
    return generate_latest(_Families(families))


def added(processes: Sequence[Iterable[Metric]]) -> list[Metric]:
    """Each family once, in the order in which they first come; each sample once, with the sum of all."""
    kinds: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for families in processes:
        for family in families:
            kinds.setdefault(family.name, family)
            found = sums.setdefault(family.name, {})
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                if key not in found:
                    found[key] = sample.value
                elif family.name in _OF_ANY or sample.name.endswith("_created"):
                    found[key] = min(found[key], sample.value)
                else:
                    found[key] += sample.value
    return [_family(kinds[name], found) for name, found in sums.items()]


def lasting(families: Iterable[Metric]) -> list[Metric]:
    """What stays of a process that is gone."""
    return [each for each in families if each.type in GROWING]


def _family(like: Metric, samples: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> Metric:
    family = Metric(like.name, like.documentation, like.type)
    for (name, labels), value in samples.items():
        family.add_sample(name, dict(labels), value)
    return family
