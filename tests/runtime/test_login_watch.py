"""A refused login is logged once, counted each time, and known until it is accepted."""

from __future__ import annotations

import io

from tierstate.runtime.listener import fan_out
from tierstate.runtime.login_watch import LoginWatch
from tierstate.runtime.logs import log_events, open_logs
from tierstate.runtime.metrics import Metrics


def test_a_refused_login_is_logged_once_and_counted_each_time_until_it_is_accepted() -> None:
    output, metrics = io.StringIO(), Metrics()
    logger = open_logs({"TIERSTATE_LOG": "json"}, stream=output)
    watch = LoginWatch("kafka", fan_out(metrics.listen, log_events(logger)))
    for _ in range(3):
        watch.refused("broker-1:9093", "agent", "SCRAM-SHA-256", "SASL_AUTHENTICATION_FAILED")
    (line,) = output.getvalue().splitlines()
    for word in ('"login refused"', '"broker-1:9093"', '"agent"', '"SCRAM-SHA-256"', '"warning"'):
        assert word in line
    counter = 'tierstate_logins_refused_total{server="broker-1:9093",service="kafka",user="agent"} 3.0'
    assert counter in metrics.exposition().decode()
    (trouble,) = watch.troubles()
    assert "server=broker-1:9093 user=agent mechanism=SCRAM-SHA-256" in trouble
    watch.refused("broker-1:9093", "another", "SCRAM-SHA-256", "SASL_AUTHENTICATION_FAILED")
    assert len(output.getvalue().splitlines()) == 2
    watch.accepted("broker-1:9093", "another")
    watch.accepted("broker-1:9093", "another")
    assert "login accepted" in output.getvalue().splitlines()[2]
    assert len(output.getvalue().splitlines()) == 3
    assert not watch.troubles()


def test_a_server_that_left_the_cluster_refuses_no_login() -> None:
    watch = LoginWatch("kafka", lambda event: None)
    watch.refused("broker-1:9093", "agent", "PLAIN", "wrong")
    watch.keep({"broker-2:9093"})
    assert not watch.servers


def test_a_secret_that_was_read_again_is_hidden_in_the_log() -> None:
    output, secrets = io.StringIO(), ["first-password"]
    logger = open_logs({"TIERSTATE_LOG": "json"}, later=lambda: secrets, stream=output)
    secrets.append("second-password")
    logger.info("x", reason="first-password and second-password")
    assert "-password" not in output.getvalue()
