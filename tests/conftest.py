"""Real Kafka for the tests of all packages: one broker that all share, and three for those that need them."""

from __future__ import annotations

import gc
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.scheduling import another_order_each_day, begins, by_rooms
from tests.tiers import EXPLORING, TIERS, draw_fewer, has_nothing_essential, mark_tier, part_of
from tierstate.sandbox.artifacts import RELEASES
from tierstate.sandbox.kafka import KafkaSandbox

_ROOMS = (path.name for path in Path(__file__).parent.iterdir() if path.is_dir())
pytest.register_assert_rewrite(*(f"tests.{name}" for name in _ROOMS))  # asserts of helpers show their values, too
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts us with & ignores it, for children too

BEGAN_AT, BEGAN = "began_at", pytest.StashKey[float]()
TIME_IS_OVER = "the time of this run is over (--within)"


# A busy machine is no finding, and every test here that uses a fixture in many examples may.
_ANYWHERE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
settings.register_profile("fixed", _ANYWHERE, derandomize=True)
settings.register_profile(EXPLORING, _ANYWHERE, print_blob=True)
settings.load_profile("fixed")  # `make nightly` explores with seeds of its own: --hypothesis-profile


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, help="run the tests of one verb of the Makefile (tests/tiers.py)")
    parser.addoption("--part", default="1/1", help="run one part of the files, such as 1/2 (make nightly HALF=1)")
    parser.addoption(
        "--within", type=float, help="begin no test after so many seconds, and say at the end which are left"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        mark_tier(item)
    if config.getoption("tier") == "test":
        for function in {item.function for item in items if item.get_closest_marker("drawn")}:  # type: ignore[attr-defined]
            draw_fewer(function)
    items[:] = [item for item in items if part_of(item.location[0], config.getoption("part"))]
    items.sort(key=another_order_each_day if config.getoption("within") else begins)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file of which `make test` selects no test: each worker would take seconds for it."""
    return (config.option.markexpr == TIERS["test"] and has_nothing_essential(collection_path)) or None


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what was collected: a million objects that live until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return by_rooms(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # before the fixtures of a test start
def pytest_runtest_setup(item: pytest.Item) -> None:
    within = item.config.option.within
    worker = getattr(item.config, "workerinput", None)
    began = item.config.stash[BEGAN] if worker is None else worker[BEGAN_AT]
    if within and time.time() > began + within:
        pytest.skip(TIME_IS_OVER)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell each worker when the run began: workers parse ``--within`` themselves."""
    node.workerinput[BEGAN_AT] = node.config.stash[BEGAN]


class FilesOfTheRun:
    """The time of a run by file, longest first: the next minute to save is in one of them. Workers run in parallel.

    With ``--within``, also the files of which tests are left. A run that began none of them fails.
    """

    SHOWN = 20

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.left: Counter[str] = Counter()
        self.ran = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.location[0]
        self.seconds[file] = self.seconds.get(file, 0.0) + report.duration
        if report.skipped and TIME_IS_OVER in str(report.longrepr):
            self.left[file] += 1
        self.ran |= report.when == "call"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.left and not self.ran:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left:
            terminalreporter.section(f"not run, because the time is over: {self.left.total()} tests")
            for file, tests in sorted(self.left.items()):
                terminalreporter.write_line(f"{tests:7}  {file}")
        if len(self.seconds) <= self.SHOWN:
            return
        terminalreporter.section(f"the {self.SHOWN} slowest of {len(self.seconds)} files")
        for file, seconds in sorted(self.seconds.items(), key=lambda each: -each[1])[: self.SHOWN]:
            terminalreporter.write_line(f"{seconds:7.1f} s  {file}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("tier"):
        config.option.markexpr = TIERS[config.getoption("tier")]
    if not hasattr(config, "workerinput"):  # not in the workers: they report to the process that waits for them
        config.pluginmanager.register(FilesOfTheRun(), "files of the run")
        config.stash[BEGAN] = time.time()


@pytest.fixture(scope="module")
def tls_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    """Run a broker behind TLS, SASL and ACLs for one file of tests."""
    from tests.broker.guarded import guarded_sandbox

    with guarded_sandbox(tmp_path_factory.mktemp("tls")) as opened:
        yield opened


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaSandbox]:
    """Run one broker for all tests, which share it: use a unique topic name (`topic_name`) and never stop it."""
    sandbox = KafkaSandbox().open()
    yield sandbox
    sandbox.close(keep_logs=request.session.testsfailed > 0)


@pytest.fixture(scope="module")
def kafka_three(request: pytest.FixtureRequest) -> Iterator[KafkaSandbox]:
    """Run three brokers for one file of tests: kill, freeze and start them as you like, and leave all three running."""
    failed = request.session.testsfailed
    sandbox = KafkaSandbox(3).open()
    yield sandbox
    sandbox.close(keep_logs=request.session.testsfailed > failed)


@pytest.fixture(scope="module")
def kafka_older(request: pytest.FixtureRequest) -> Iterator[KafkaSandbox]:
    """Run one broker of the oldest release that we test with, for one file of tests: stop and start it as you like."""
    failed = request.session.testsfailed
    sandbox = KafkaSandbox(release=RELEASES[-1]).open()
    yield sandbox
    sandbox.close(keep_logs=request.session.testsfailed > failed)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """Return a topic name that only this test uses."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.nodeid)[-200:].strip("-")
