"""Commands name the writer of a heartbeat or of a fact by what it is: agents by Fetch belong to no broker."""

from __future__ import annotations

import io

from tests.state.conftest import NOW, Build
from tierstate.app.operating.prefix import Side, Sides
from tierstate.cli import keep_prefix
from tierstate.cli.context import Context
from tierstate.cli.output import Output
from tierstate.fetch.verify import check_view
from tierstate.follower.heartbeat import Heartbeat
from tierstate.state.facts import IntegrityHold
from tierstate.state.ids import COPIER, RECOVERER, BrokerId, FactId, writer_of
from tierstate.state.offsets import Position


def test_a_writer_is_a_broker_the_agents_by_fetch_or_a_command() -> None:
    assert [writer_of(each) for each in (7, COPIER, RECOVERER)] == ["broker 7", "an agent by Fetch", "a command"]


def test_keep_prefix_shows_what_writes_each_heartbeat() -> None:
    beats = [
        Heartbeat("p", broker, "", "host", "place", "", Position(0), "", "", 0, 0, 0) for broker in (7, COPIER, -1)
    ]
    out, context = io.StringIO(), Context()
    context.output = Output(stdout=out, stderr=io.StringIO())
    keep_prefix._show(context, Sides(tuple(Side(beat, NOW, True) for beat in beats), (), False), False)
    head, *rows = out.getvalue().splitlines()
    assert "writer" in head
    assert [name in row for name, row in zip(("broker 7", "an agent by Fetch", "a command"), rows, strict=True)] == (
        [True] * 3
    )
    assert str(COPIER) not in out.getvalue()


def test_verify_names_the_agent_that_wrote_a_hold() -> None:
    build = Build()
    holds = [
        build.live(at, IntegrityHold(build.partition, FactId.of(bytes(15) + bytes([at])), broker, "why", "a", "b", NOW))
        for at, broker in enumerate((BrokerId(7), COPIER))
    ]
    told = [finding.what for finding in check_view(build.view(*holds), None) if finding.what.startswith("held by")]
    assert sorted(told) == ["held by an agent by Fetch: why: a / b", "held by broker 7: why: a / b"]
