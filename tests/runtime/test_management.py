from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping

import httpx
import pytest

from tierstate.runtime.management import Health, ManagementServer
from tierstate.runtime.setting_types import Address
from tierstate.runtime.settings_load import load_settings
from tierstate.state.errors import InvalidSettings, UnknownTopic, ViewBehind


class Answers:
    """The answers of the process under watch; tests change them."""

    def __init__(self) -> None:
        self.unhealthy: list[str] = []
        self.unready: list[str] = []
        self.asked: list[tuple[str, int]] = []

    def status(self, topic: str, partition: int) -> Mapping[str, object] | None:
        self.asked.append((topic, partition))
        if topic == "behind":
            raise ViewBehind("the view is behind", position=7)
        if topic == "unknown":
            raise UnknownTopic("no such topic", topic=topic)
        if topic == "broken":
            raise RuntimeError("/secret/path")
        return {"why_not_copied": "open transaction"} if topic == "a b" else None


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def port(answers: Answers) -> Iterator[httpx.Client]:
    health = Health(
        not_healthy=lambda: answers.unhealthy,
        not_ready=lambda: answers.unready,
        metrics=lambda: b"up 1\n",
        status=answers.status,
    )
    server = ManagementServer(Address("127.0.0.1", 0), health, Address("broker-1.example", 9404))
    service = server.service()
    service.start()
    with httpx.Client(base_url=f"http://{server.address}", trust_env=False) as client:
        yield client
    service.stop()
    assert service.join(10)
    assert service.failure is None


def test_health_and_readiness_say_why_not(port: httpx.Client, answers: Answers) -> None:
    assert (port.get("/healthz").status_code, port.get("/readyz").text) == (200, "ready\n")
    answers.unready = ["view is 12 facts behind in tier-state partition 3", "no broker"]
    answers.unhealthy = ["the copier is stuck"]
    ready = port.get("/readyz")
    assert ready.status_code == 503
    assert ready.text.splitlines() == ["not ready", *answers.unready]
    assert port.get("/healthz").status_code == 503


def test_metrics_are_in_prometheus_text_format(port: httpx.Client) -> None:
    answer = port.get("/metrics")
    assert answer.text == "up 1\n"
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_the_status_of_a_partition_is_json(port: httpx.Client, answers: Answers) -> None:
    assert port.get("/v1/status/a%20b/7").json() == {"why_not_copied": "open transaction"}
    assert answers.asked == [("a b", 7)]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/status/other/0", 404),
        ("/v1/status/unknown/0", 404),
        ("/v1/status/behind/0", 503),
        ("/v1/status/broken/0", 500),
        ("/v1/status/a/x", 404),
        ("/v1/status/a/12345678901", 404),
        ("/v1/status/a", 404),
        ("/", 404),
        ("/metrics/../x", 404),
    ],
)
def test_an_error_is_a_status_without_inner_details(path: str, status: int, port: httpx.Client) -> None:
    answer = port.get(path)
    assert answer.status_code == status
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def test_head_has_no_body_and_posting_is_refused(port: httpx.Client) -> None:
    assert (port.head("/healthz").status_code, port.head("/healthz").content) == (200, b"")
    assert port.post("/healthz").status_code == 501


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9404", 200), ("LOCALHOST", 200), ("127.0.0.1", 200), ("127.1.2.3:1", 200), ("[::1]:9404", 200),
        ("10.0.0.7:9404", 200), ("broker-1.example:9404", 200), ("evil.example", 421), ("evil.example:9404", 421),
        ("localhost.evil.example", 421), ("127.0.0.1.evil.example", 421), ("broker-2.example:9404", 421), ("[::1", 421),
        ("", 421),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/metrics", "/v1/status", "/healthz"])
def test_a_port_of_this_machine_is_not_called_by_a_name_that_a_web_page_gave_it(
    host: str, status: int, path: str, port: httpx.Client
) -> None:
    """DNS rebinding: a web page's own name leads to this port, so that its scripts may read the answers."""
    assert port.get(path, headers={"host": host}).status_code == status


@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    ("host", "status"),
    [("tier.example:9404", 200), ("TIER.example", 200), ("127.0.0.1", 200), ("localhost", 200), ("evil.example", 421)],
)
def test_a_port_whose_names_are_set_is_called_by_these_and_no_others(listen: str, host: str, status: int) -> None:
    health = Health(lambda: [], lambda: [], lambda: b"", lambda topic, partition: None)
    settings = load_settings(None, ["management.hosts=Tier.example"], {}, searched=())
    server = ManagementServer(Address(listen, 0), health, hosts=settings.management.hosts)
    service = server.service()
    service.start()
    url = f"http://127.0.0.1:{server.address.port}/healthz"
    assert httpx.get(url, headers={"host": host}, trust_env=False).status_code == status
    service.stop()
    assert service.join(10)


@pytest.mark.parametrize("host", ["broker-1.example:9404", "gateway"])
def test_a_port_for_others_is_called_by_whatever_name_they_have_for_it(host: str) -> None:
    health = Health(lambda: [], lambda: [], lambda: b"", lambda topic, partition: None)
    server = ManagementServer(Address("0.0.0.0", 0), health)
    service = server.service()
    service.start()
    url = f"http://127.0.0.1:{server.address.port}/healthz"
    assert httpx.get(url, headers={"host": host}, trust_env=False).status_code == 200
    service.stop()
    assert service.join(10)


def test_a_taken_port_is_an_error_at_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        health = Health(lambda: [], lambda: [], lambda: b"", lambda topic, partition: None)
        with pytest.raises(InvalidSettings, match=r"management\.listen"):
            ManagementServer(Address("127.0.0.1", taken.getsockname()[1]), health)


def test_stopping_right_after_the_start_does_not_hang() -> None:
    health = Health(lambda: [], lambda: [], lambda: b"", lambda topic, partition: None)
    for _ in range(20):
        service = ManagementServer(Address("127.0.0.1", 0), health).service()
        service.start()
        service.stop()
        assert service.join(10)
