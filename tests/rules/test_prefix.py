"""The verdict on the other processes below a bucket prefix, in words that say how long to wait."""

from __future__ import annotations

from tierstate.rules.prefix import SILENT_PERIODS, NotYet, Peer, judge


def test_a_process_that_has_not_answered_is_named_with_how_long_to_wait_and_what_to_do_then() -> None:
    silent_s = {"broker 1": 30, "broker 2": 5}
    peers = [Peer(name, True, False, False, False, False, seconds) for name, seconds in silent_s.items()]
    verdict = judge(peers, 20.0)
    assert isinstance(verdict, NotYet)
    assert "broker 1, broker 2" in verdict.why
    assert f"wait 1 m {SILENT_PERIODS * 20 - 5 - 60} s more, then look with tierstate keep-prefix" in verdict.why
