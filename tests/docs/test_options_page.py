"""`docs/options.md` and `docs/spark.md` agree with the code, and the table has exactly the options of the parser."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import pytest

from tests.docs.generated import shown
from tests.docs.options_page import COLUMNS, KAFKA_SOURCE, PAGE, PYTHON, SPARK_PAGE, parts, spark_parts
from tierstate import read_records
from tierstate.log.record_columns import FIELDS
from tierstate.spark import options as parser
from tierstate.spark.columns import PLAIN_COLUMNS, SPARK_TYPES
from tierstate.spark.kafka_properties import PASSED, PASSED_PREFIXES, REFUSED, kafka_properties
from tierstate.spark.option_table import DEFAULTS, OPTIONS, Option, with_defaults
from tierstate.spark.options import SourceOptions, parse_options
from tierstate.state.errors import InvalidRequest, InvalidSettings

KAFKA = {"kafka.bootstrap.servers": "127.0.0.1:9"}
BASE = {**KAFKA, "tierstate.store": "file:///store", "subscribe": "orders"}


def page() -> str:
    return PAGE.read_text()


def parsed(given: dict[str, str]) -> SourceOptions | None:
    """Return the parsed options, or None if they are refused."""
    try:
        return parse_options(given)
    except (InvalidRequest, InvalidSettings):
        return None


def test_the_page_is_what_the_code_says() -> None:
    for name, text in parts().items():
        assert shown(page(), name) == text, "python -m tests.docs.options_page --write"


def test_the_page_on_spark_is_what_the_code_says() -> None:
    for name, text in spark_parts().items():
        assert shown(SPARK_PAGE.read_text(), name) == text, "python -m tests.docs.options_page --write"


def test_an_option_that_equals_the_kafka_sources_has_its_default() -> None:
    same = {name: default for name, (default, here) in KAFKA_SOURCE.items() if not here}
    ours = {option.name: option.default for option in OPTIONS if option.name in same and option.default is not None}
    assert ours
    assert all(f"`{default}`" in same[name] for name, default in ours.items())
    # options without a default here have none there
    assert {name for name, default in same.items() if default} - set(ours) <= {
        "kafka.isolation.level",
        "maxTriggerDelay",
    }


@pytest.mark.parametrize("name", [name for name, (_, here) in KAFKA_SOURCE.items() if here.startswith("Ignored")])
def test_an_option_that_is_said_to_be_ignored_changes_nothing(name: str) -> None:
    assert parsed({**BASE, name: "1"}) == parsed(BASE)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_of_the_table_is_looked_at(option: Option) -> None:
    """Every option counts: a wrong value is refused, and any other value changes what is read."""
    assert parsed({**BASE, option.name: "somebody's"}) != parsed(BASE)


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.default], ids=lambda option: option.name)
def test_a_default_is_what_is_read_without_the_option(option: Option) -> None:
    assert parsed({**BASE, option.name: str(option.default)}) == parse_options(BASE)


class Asked(dict[str, str]):
    """Options that remember which names were asked for."""

    names: set[str]

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


def test_the_parser_asks_for_no_option_that_the_table_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    names: set[str] = set()

    def watched(given: dict[str, str]) -> Asked:
        options = Asked(with_defaults(given))
        options.names = names
        return options

    monkeypatch.setattr(parser, "with_defaults", watched)
    for more in ({}, {"kafka.isolation.level": "read_committed"}):
        parse_options({**BASE, **more})
    documented = {option.name.lower() for option in OPTIONS} | set(KAFKA)
    assert names - documented == set()
    assert names >= set(DEFAULTS)


def test_no_option_is_in_the_table_twice() -> None:
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)


def test_the_claims_about_the_kafka_client_hold() -> None:
    for name in (*PASSED, *(f"{prefix}anything" for prefix in PASSED_PREFIXES)):
        assert name in kafka_properties({**KAFKA, f"kafka.{name}": "x"})
    for name in REFUSED:
        with pytest.raises(InvalidRequest):
            kafka_properties({**KAFKA, f"kafka.{name}": "x"})
    assert kafka_properties({**KAFKA, "kafka.max.poll.records": "5"}) == {"bootstrap.servers": "127.0.0.1:9"}


def test_the_spark_snippet_is_accepted() -> None:
    code = snippet("spark.session")
    options = dict(re.findall(r'\.option\("([^"]+)", "([^"]+)"\)', code))
    assert set(options) <= {option.name for option in OPTIONS}
    assert parsed(options) is not None


def test_the_python_snippet_can_be_called() -> None:
    calls = [
        node
        for node in ast.walk(ast.parse(snippet("read_records")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "read_records"
    ]
    assert len(calls) == 1
    inspect.signature(read_records).bind(*calls[0].args, **{str(pair.arg): pair.value for pair in calls[0].keywords})


def snippet(name: str) -> str:
    codes: list[str] = re.findall(r"^```python\n(.*?)^```$", page(), re.M | re.S)
    return next(code for code in codes if name in code)


def test_every_parameter_and_every_column_has_its_line() -> None:
    assert list(PYTHON) == list(inspect.signature(read_records).parameters)
    assert list(COLUMNS) == list(FIELDS) == list(SPARK_TYPES)
    assert [name for name in FIELDS if name in PLAIN_COLUMNS] == list(PLAIN_COLUMNS)
