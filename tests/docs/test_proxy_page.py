"""`docs/proxy.md` has every request that passes, as the code has it, and every client that was tested."""

from __future__ import annotations

import json

from tests.docs.generated import shown
from tests.docs.proxy_page import PAGE, RESULTS, parts
from tests.proxy.clients import CLIENTS, WAYS
from tests.proxy.clients_table import versions


def test_the_tables_are_those_of_the_code_and_of_the_last_run() -> None:
    page = PAGE.read_text()
    assert {name: shown(page, name) for name in parts()} == parts(), "python -m tests.docs.proxy_page --write"


def test_every_client_of_the_suite_has_read_equal() -> None:
    read = json.loads(RESULTS.read_text())
    assert list(read) == list(CLIENTS), "python -m tests.proxy.clients_table"
    assert {name: tuple(each["ways"]) for name, each in read.items()} == WAYS
    # as the environment has them: they may be newer than the run
    own = {"librdkafka", "librdkafka in C", "kafka-python", "aiokafka"}
    assert {name: each["version"] for name, each in read.items() if name not in own} == {
        name: version for name, version in versions().items() if name not in own
    }
