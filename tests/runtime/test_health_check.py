"""The health check of a container asks where the process in it listens."""

from __future__ import annotations

from pathlib import Path

from tierstate.runtime.health_check import DEFAULTS, SEARCHED, addresses, is_healthy
from tierstate.runtime.settings import LISTENS, Settings
from tierstate.runtime.settings_load import SEARCHED as SETTINGS_SEARCHED


def test_without_a_setting_it_asks_the_default_port_of_each_process() -> None:
    assert [str(Settings().management.of(process)) for process in LISTENS] == list(DEFAULTS)
    assert addresses({}, ()) == DEFAULTS


def test_it_finds_the_address_in_the_variable_and_in_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "tierstate.toml"
    file.write_text('[management]\nlisten = "10.0.0.7:9404"\n')
    assert addresses({"TIERSTATE_CONFIG": str(file)}) == ("10.0.0.7:9404",)
    assert addresses({}, [str(tmp_path / "absent"), str(file)]) == ("10.0.0.7:9404",)
    assert addresses({"TIERSTATE_CONFIG": str(file), "TIERSTATE_MANAGEMENT__LISTEN": "[::]:1"}) == ("[::]:1",)
    assert list(SEARCHED) == [str(each) for each in SETTINGS_SEARCHED]


def test_a_port_where_nothing_listens_is_not_healthy() -> None:
    assert not is_healthy("127.0.0.1:1")
