from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.docs.settings_page import descriptions, settings_markdown
from tests.runtime.loaded import WriteToml, given, problems
from tierstate.runtime.effective_settings import effective
from tierstate.runtime.setting_types import Address, Section
from tierstate.runtime.settings import LISTENS, Management, Settings, TopicOverrides, require
from tierstate.runtime.settings_keys import FIELDS
from tierstate.runtime.settings_load import load_settings
from tierstate.state.errors import InvalidSettings

DESIGN = """
state_dir = "/var/lib/tierstate"
[kafka]
"bootstrap.servers" = "127.0.0.1:9092"
socket.timeout.ms = 5000
"enable.idempotence" = true
[store]
url = "s3://bucket/prefix"
endpoint = "http://127.0.0.1:9000"
[tier_state]
topic = "_tier-state"
partitions = 50
replication_factor = 3
[tiering]
include = ["user_events", "orders-.*"]
exclude = []
[tiering.topics."user.events"]
local_retention = "1h"
[format]
compression = "auto"
chunk_bytes = "1MiB"
[agent]
log_dirs = ["/kafka/a", "/kafka/b"]
[copy]
lag = "0s"
concurrency = 4
quota = "0"
[trim]
delay = "15m"
respect_groups = true
exclude_groups = []
group_hold_max = "7d"
[expire]
grace = "60s"
[sweep]
grace = "24h"
[encryption]
keyring = "keyring.toml"
[cache]
memory = "256MiB"
disk = "0"
[archive]
keep = "400d"
[checkpoint]
keep = 3
[management]
listen = "127.0.0.1:9404"
[gateway]
listen = "127.0.0.1:8080"
[gateway.tls]
[gateway.auth]
"""


def test_the_file_of_the_design_is_read_into_typed_values(write_toml: WriteToml, tmp_path: Path) -> None:
    settings = given(write_toml(DESIGN))
    assert settings.format.chunk_bytes == 1 << 20
    assert settings.trim.delay == 900
    assert settings.management.listen == Address("127.0.0.1", 9404)
    assert settings.agent.log_dirs == (Path("/kafka/a"), Path("/kafka/b"))
    assert settings.encryption.keyring == tmp_path / "keyring.toml"
    assert settings.kafka == {
        "bootstrap.servers": "127.0.0.1:9092",
        "socket.timeout.ms": "5000",
        "enable.idempotence": "true",
    }
    assert settings.tiering.topics["user.events"].local_retention == 3600


def test_the_defaults_are_those_of_the_design(write_toml: WriteToml) -> None:
    design, free = given(write_toml(DESIGN)), {"kafka", "store", "tiering", "agent", "encryption", "management"}
    assert design.model_dump(exclude=free) == Settings().model_dump(exclude=free)
    assert design.management.listen == Settings().management.of("agent")


def test_an_agent_and_a_gateway_with_the_same_settings_get_on_on_one_machine() -> None:
    unset = Settings().management
    assert unset.of("agent") != unset.of("gateway")
    assert Settings().gateway.listen not in (unset.of("agent"), unset.of("gateway"))
    settings = given(None, "management.listen=127.0.0.1:1").management
    assert settings.of("agent") == settings.of("gateway") == Address("127.0.0.1", 1)


def test_an_agent_announces_where_it_can_be_asked() -> None:
    everywhere, here = Address("0.0.0.0", 9404), Address("10.0.0.7", 40_404)
    assert Settings().management.announced(here) == here, "with the port that was taken"
    for bound in (everywhere, Address("::", 9404)):
        with pytest.raises(InvalidSettings, match=r"is every address; say by management\.advertised"):
            Settings().management.announced(bound)
    settings = given(None, "management.listen=0.0.0.0:9404", "management.advertised=broker-1.example:30404").management
    assert settings.announced(everywhere) == Address("broker-1.example", 30_404)


@pytest.mark.parametrize("wrong", ["0.0.0.0:9404", "[::]:9404", "broker-1:0", "broker-1"])
def test_an_unreachable_address_is_not_advertised(wrong: str) -> None:
    assert problems(None, f"management.advertised={wrong}")[0].startswith("management.advertised: not an address")


def test_every_error_is_reported_at_once_with_its_dotted_key_and_origin(write_toml: WriteToml) -> None:
    file = write_toml('[trim]\ndelay = "soon"\n[tiering]\ninclude = ["("]\n[copy]\nconcurrency = 0\nlga = "1s"\n')
    messages = problems(
        file, "cache.disk=many", "store.url=ftp://x", TIERSTATE_GATEWAY__TLS__KAY="k", TIERSTATE_NO__SUCH="1"
    )
    assert {line.partition(":")[0] for line in messages} == {
        "trim.delay",
        "tiering.include.0",
        "copy.concurrency",
        "copy.lga",
        "cache.disk",
        "store.url",
        "gateway.tls.kay",
        "no",
    }
    assert all(line.endswith(")") for line in messages)
    assert any(f"({file})" in line for line in messages)
    assert any("(environment TIERSTATE_GATEWAY__TLS__KAY)" in line for line in messages)
    assert any("(environment TIERSTATE_NO__SUCH)" in line for line in messages)


@pytest.mark.parametrize("written", ["15", "15.0", '"15"'])
def test_a_duration_without_a_unit_is_refused_with_the_right_form(write_toml: WriteToml, written: str) -> None:
    text = written.strip('"')
    file = write_toml(f'[trim]\ndelay = {written}\n[tiering.topics."a.b"]\nretention = {written}\n')
    how = (
        f"a duration without a unit: {text}; write {text}s for seconds, {text}ms, {text}m, {text}h or {text}d ({file})"
    )
    assert sorted(problems(file)) == [f"tiering.topics.a.b.retention: {how}", f"trim.delay: {how}"]
    assert problems(None, f"copy.lag={text}", TIERSTATE_SWEEP__GRACE=text)[0].startswith("copy.lag: a duration without")


@pytest.mark.parametrize("written", ["0", "0.0", '"0"', '"0s"'])
def test_no_time_at_all_needs_no_unit(write_toml: WriteToml, written: str) -> None:
    assert given(write_toml(f"[trim]\ndelay = {written}\n")).trim.delay == 0


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("copy.concurency", "copy.concurrency"),
        ("sotre.url", "store"),
        ("store.uri", "store.url"),
        ("gateway.tls.certifcate", "gateway.tls.certificate"),
        ("sweep.group_hold_max", "trim.group_hold_max"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(key: str, nearest: str) -> None:
    (line,) = problems(None, f"{key}=1")
    assert f"did you mean {nearest}" in line


@pytest.mark.parametrize("key", ["gateway.workers", "gateway.connections_per_address"])
def test_a_removed_setting_is_an_error_that_names_its_replacement(key: str) -> None:
    (line,) = problems(None, f"{key}=2")
    assert line.startswith(f"{key}: was removed: ")
    assert "deploy/nginx.conf" in line


def test_an_unknown_key_of_a_topic_names_the_nearest(write_toml: WriteToml) -> None:
    (line,) = problems(write_toml('[tiering.topics."a.b"]\nlocal_retenton = "1s"\n'))
    assert "did you mean tiering.topics.a.b.local_retention?" in line


def test_the_later_layer_wins(write_toml: WriteToml) -> None:
    file = write_toml('[store]\nurl = "s3://file"\n[copy]\nconcurrency = 1\nlag = "1s"\n[trim]\ndelay = "1s"\n')
    settings = load_settings(
        file,
        ["store.url=s3://set", "copy.concurrency=3"],
        {"TIERSTATE_COPY__CONCURRENCY": "2", "TIERSTATE_COPY__LAG": "2s", "TIERSTATE_STORE__URL": "s3://env"},
        bootstrap_server="b:1",
        store="s3://flag",
    )
    assert (settings.store.url, settings.copy_.concurrency, settings.copy_.lag, settings.trim.delay) == (
        "s3://flag",
        3,
        2.0,
        1.0,
    )
    origins = {row.key: row.origin for row in effective(settings)}
    assert origins["store.url"] == "--store"
    assert origins["kafka.bootstrap.servers"] == "--bootstrap-server"
    assert origins["copy.concurrency"] == "--set"
    assert origins["copy.lag"] == "environment TIERSTATE_COPY__LAG"
    assert origins["trim.delay"] == str(file)
    assert origins["trim.respect_groups"] == "default"


def test_the_file_is_found_by_variable_then_by_place(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text("[checkpoint]\nkeep = 1\n")
    second.write_text("[checkpoint]\nkeep = 2\n")
    searched = (tmp_path / "missing.toml", second)
    assert load_settings(None, (), {}, searched=searched).checkpoint.keep == 2
    assert load_settings(None, (), {"TIERSTATE_CONFIG": str(first)}, searched=searched).checkpoint.keep == 1
    assert load_settings(second, (), {"TIERSTATE_CONFIG": str(first)}, searched=()).checkpoint.keep == 2


def test_a_file_that_was_asked_for_and_is_missing_or_not_toml_is_an_error(tmp_path: Path) -> None:
    assert "cannot be read" in problems(tmp_path / "none.toml")[0]
    (tmp_path / "bad.toml").write_text("[copy\n")
    assert "not TOML" in problems(tmp_path / "bad.toml")[0]


def test_kafka_properties_come_from_the_environment_with_dots() -> None:
    settings = given(TIERSTATE_KAFKA__BOOTSTRAP_SERVERS="b:1", TIERSTATE_KAFKA__SASL_MECHANISM="PLAIN")
    assert settings.kafka == {"bootstrap.servers": "b:1", "sasl.mechanism": "PLAIN"}


@pytest.mark.parametrize("origin", ["file", "--set"])
def test_a_kafka_property_with_underscores_is_refused_with_its_name(write_toml: WriteToml, origin: str) -> None:
    file = write_toml('[kafka]\nbootstrap_servers = "b:1"\n') if origin == "file" else None
    (line,) = problems(file, *([] if file else ["kafka.bootstrap_servers=b:1"]))
    assert line.startswith("kafka.bootstrap_servers: librdkafka's names have dots: did you mean bootstrap.servers?")


def test_lists_and_booleans_can_be_given_as_text() -> None:
    settings = given(
        None, 'tiering.include=["a,b", "c"]', TIERSTATE_AGENT__LOG_DIRS="/one", TIERSTATE_TRIM__RESPECT_GROUPS="false"
    )
    assert settings.tiering.include == ("a,b", "c")
    assert settings.agent.log_dirs == (Path("/one"),)
    assert settings.trim.respect_groups is False


def test_tables_by_topic_are_refused_outside_the_file() -> None:
    assert "file only" in problems(None, "tiering.topics.a.retention=1d")[0]
    assert "file only" in problems(TIERSTATE_TIERING__TOPICS__A__RETENTION="1d")[0]


def test_variables_that_are_no_settings_are_left_alone() -> None:
    given(TIERSTATE_DEBUG="1", TIERSTATE_LOG="json", PATH="/bin")


@pytest.mark.parametrize(
    "url", ["s3://key:secret@bucket/x", "az://c/p?sig=abc", "file://host/x", "file:x", "s3:///x", "x"]
)
def test_a_store_url_that_cannot_be_meant_is_refused(url: str) -> None:
    assert problems(None, f"store.url={url}")[0].startswith("store.url: ")


def test_patterns_match_whole_names_and_exclude_wins() -> None:
    tiering = given(None, 'tiering.include=["orders-.*", "user_events"]', 'tiering.exclude=["orders-test"]').tiering
    assert [tiering.covers(name) for name in ("orders-1", "orders-test", "user_events", "my_user_events")] == [
        True,
        False,
        True,
        False,
    ]


def test_all_settings_that_a_command_lacks_are_named_at_once() -> None:
    with pytest.raises(InvalidSettings) as caught:
        require(Settings(), "store.url", "agent.log_dirs", "kafka.bootstrap.servers", "copy.lag")
    assert [line.partition(":")[0] for line in caught.value.problems] == [
        "store.url",
        "agent.log_dirs",
        "kafka.bootstrap.servers",
    ]


def test_settings_do_not_change_and_cross_process_borders() -> None:
    settings = given(None, "copy.concurrency=9")
    with pytest.raises(ValidationError):
        settings.copy_.concurrency = 1
    again: Settings = pickle.loads(pickle.dumps(settings))
    assert again == settings
    assert again.origin("copy.concurrency") == "--set"


def test_every_setting_is_described() -> None:
    sections: list[type[Section]] = [Settings, TopicOverrides]
    for section in sections:
        described = descriptions(section)
        for name, field in section.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
                sections.append(field.annotation)
            else:
                assert described[field.alias or name], (section, name)


def test_the_ports_of_the_processes_are_described() -> None:
    assert all(str(address) in descriptions(Management)["listen"] for address in LISTENS.values())


def test_the_settings_page_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    command = "python -m tests.docs.settings_page > docs/settings.md"
    assert page.read_text(encoding="utf-8") == settings_markdown(), command


def test_the_catalogs_properties_are_taken_as_they_are(write_toml: WriteToml) -> None:
    file = write_toml(
        '[catalog]\ntype = "rest"\nuri = "https://catalog.example"\ns3.endpoint = "https://s3.example"\n'
        '"rest.sigv4-enabled" = true\ntoken = { env = "CATALOG_TOKEN" }\n'
    )
    settings = load_settings(file, ("catalog.warehouse=s3://lake/kafka",), {"CATALOG_TOKEN": "geheim"})
    assert settings.catalog == {
        "type": "rest",
        "uri": "https://catalog.example",
        "s3.endpoint": "https://s3.example",
        "rest.sigv4-enabled": "true",
        "token": "geheim",
        "warehouse": "s3://lake/kafka",
    }
    assert [each.value for each in effective(settings) if each.key == "catalog.token"] == ["(hidden)"]


def test_the_page_says_once_that_a_setting_needs_a_restart_and_names_what_is_read_again() -> None:
    page = settings_markdown()
    (match,) = re.findall(r"^- \*\*A setting needs a restart.*?(?=\n- |\n\n)", page, re.MULTILINE | re.DOTALL)
    again = set(re.findall(r"`([a-z_]+\.[a-z_.]+)`", match))
    assert again == {"encryption.keyring", "gateway.auth.tokens", "gateway.auth.jwt.keys"}
    assert again <= {".".join(path) for path in FIELDS}
