"""The data that an export would read, and its cost, follow from its plan, at rates that are printed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fetch.two_tiers import Golden
from tests.lake.exports import EVERY_COLUMN, World
from tierstate.lake.columns import Columns
from tierstate.lake.export_quote import LOG_BYTES_A_SECOND, Quote, quote
from tierstate.values.form import Form

Make = Callable[..., Golden]


def quoted(world: World, processes: int = 1) -> Quote:
    export = world.export()
    plan = export.next_plan(world.wanted())
    assert plan is not None
    return quote(export.jobs(plan, plan.tasks), world.shape.columns, processes)


def test_it_counts_what_is_remote_and_what_brokers_have(golden_log: Make) -> None:
    golden = golden_log("transactions")
    golden.local.local_start = golden.folder.bases[-1] - 3
    quote = quoted(World(golden))
    copied = sum(len(each.offsets) for each in golden.segments)
    assert (quote.offsets, quote.local_offsets) == (golden.folder.end(), golden.folder.end() - copied)
    assert quote.segments == len(golden.segments)
    stored = sum(each.log_object_bytes for each in golden.segments)
    assert stored * 0.99 <= quote.remote_bytes <= stored
    assert world_is_left_alone(World(golden))


def world_is_left_alone(world: World) -> bool:
    quoted(world)
    return world.objects() == {}


@pytest.mark.parametrize(
    ("form", "times"),
    [(None, 1), (Form("string"), 1), (Form("json", "id bigint"), 2), (Form("avro", '"long"'), 10)],
)
def test_the_assumed_rate_is_printed_and_lower_for_typed_values(
    golden_log: Make, form: Form | None, times: int
) -> None:
    quote = quoted(World(golden_log("zstd"), columns=Columns(EVERY_COLUMN, value=form)), processes=3)
    assert quote.assumed_processes == 3
    assert quote.assumed_log_bytes_a_second == LOG_BYTES_A_SECOND // times
