"""Every option is checked before anything starts, as Spark's Kafka source checks it, and the message names it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tierstate.app.opening.moved import store_options
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.settings_load import load_settings
from tierstate.spark.options import Assigned, Matching, Subscribed, options_of, parse_options, parse_stream_options
from tierstate.spark.positions import EARLIEST, LATEST
from tierstate.state.errors import InvalidRequest, InvalidSettings
from tierstate.state.routing import Isolation, Tier

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9", "tierstate.store": "file:///store", "subscribe": "orders"}
KAFKA = {key: value for key, value in BASE.items() if key != "subscribe"}


def test_the_defaults_are_those_of_sparks_kafka_source() -> None:
    options = parse_options(BASE)
    assert options.choice == Subscribed(("orders",))
    assert (options.starting.values, options.ending.values) == (EARLIEST, LATEST)
    assert (options.fail_on_data_loss, options.min_partitions, options.latest_when_no_match) == (True, None, False)
    assert options.isolation is Isolation.READ_UNCOMMITTED
    assert options.tier is Tier.PREFER_REMOTE
    assert options.settings.tier_state.topic == "_tier-state"
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"subscribe": None}, "exactly one of the options assign, subscribe, subscribePattern"),
        ({"assign": '{"orders":[0]}'}, "exactly one of .*; assign, subscribe are given"),
        ({"subscribe": " , "}, "option subscribe names no topic"),
        ({"subscribe": None, "assign": "orders"}, "option assign is JSON"),
        ({"subscribe": None, "assign": '{"orders":["0"]}'}, "option assign is JSON"),
        ({"subscribe": None, "assign": '{"orders":[-1]}'}, "option assign is JSON"),
        ({"subscribe": None, "assign": "{}"}, "option assign is JSON"),
        ({"subscribe": None, "subscribePattern": ""}, "option subscribePattern is empty"),
        ({"subscribe": None, "subscribePattern": "a("}, "option subscribePattern is not a regular expression"),
        ({"kafka.bootstrap.servers": None}, "option kafka.bootstrap.servers must be set"),
        ({"tierstate.store": None}, "option tierstate.store must be set"),
        ({"tierstate.stoer": "x"}, "option tierstate.stoer is unknown; tierstate.store is known"),
        ({"tierstate.gateway": "http://g"}, "option tierstate.store: the gateway"),
        ({"tierstate.gateway": "http://g", "tierstate.store": None}, "option kafka.bootstrap.servers: the gateway"),
        ({"tierstate.gateway": "g:8080"}, "option tierstate.gateway is a URL"),
        ({"tierstate.token_file": "/t"}, "option tierstate.token_file is for a gateway"),
        ({"tierstate.tier": "cold"}, "option tierstate.tier is one of"),
        ({"tierstate.split_bytes": "0"}, "option tierstate.split_bytes is a size"),
        ({"tierstate.split_bytes": "many"}, "option tierstate.split_bytes is a size"),
        ({"isolation": "dirty"}, "option isolation is read_committed or read_uncommitted"),
        ({"kafka.isolation.level": "dirty"}, "option kafka.isolation.level is read_committed"),
        ({"isolation": "read_committed", "kafka.isolation.level": "read_uncommitted"}, "isolation.*disagree"),
        ({"minPartitions": "0"}, "option minPartitions is a positive whole number"),
        ({"maxRecordsPerPartition": "-1"}, "option maxRecordsPerPartition is a positive whole number"),
        ({"kafkaConsumer.pollTimeoutMs": "soon"}, "option kafkaConsumer.pollTimeoutMs is a whole number"),
        ({"fetchOffset.numRetries": "x"}, "option fetchOffset.numRetries is a whole number"),
        ({"fetchOffset.retryIntervalMs": "x"}, "option fetchOffset.retryIntervalMs is a whole number"),
        ({"includeHeaders": "yes"}, "option includeHeaders is true or false"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss is true or false"),
        ({"columns": "value,price"}, "option columns: no such column"),
        ({"columns": "value,VALUE"}, "option columns: a column is named twice"),
        ({"startingOffsets": "latest"}, "option startingOffsets cannot be latest"),
        ({"endingOffsets": "earliest"}, "option endingOffsets cannot be earliest"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "option startingOffsets cannot be latest.*orders-0"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "option endingOffsets cannot be earliest.*orders-0"),
        ({"startingOffsets": "soon"}, "option startingOffsets is earliest, latest or JSON"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "option startingOffsets: not an offset"),
        ({"startingOffsets": '{"orders":{"0":"5"}}'}, "option startingOffsets: not an offset"),
        ({"startingOffsets": '{"orders":{"x":5}}'}, "option startingOffsets is earliest, latest or JSON"),
        ({"startingTimestamp": "noon"}, "option startingTimestamp: not a time"),
        ({"endingTimestamp": "-5"}, "option endingTimestamp: not a time"),
        ({"startingOffsetsByTimestamp": "[]"}, "option startingOffsetsByTimestamp is JSON"),
        ({"endingOffsetsByTimestamp": '{"orders":{"0":1.5}}'}, "option endingOffsetsByTimestamp: not a time"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "option startingOffsetsByTimestampStrategy is error or"),
        ({"kafka.auto.offset.reset": "earliest"}, r"option kafka\.auto\.offset\.reset is not supported"),
        ({"kafka.key.deserializer": "x"}, r"option kafka\.key\.deserializer is not supported"),
        ({"kafka.value.deserializer": "x"}, r"option kafka\.value\.deserializer is not supported"),
        ({"kafka.enable.auto.commit": "true"}, r"option kafka\.enable\.auto\.commit is not supported"),
        ({"kafka.interceptor.classes": "x"}, r"option kafka\.interceptor\.classes is not supported"),
        ({"kafka.ssl.truststore.location": "x.jks"}, r"option kafka\.ssl\.truststore\.location is the Java client's"),
        ({"kafka.sasl.jaas.config": "Krb5LoginModule required;"}, r"option kafka\.sasl\.jaas\.config"),
    ],
)
def test_a_wrong_option_is_named(changed: dict[str, str | None], message: str) -> None:
    options = {key: value for key, value in {**BASE, **changed}.items() if value is not None}
    with pytest.raises(InvalidRequest, match=message):
        parse_options(options)


def test_names_are_case_insensitive_and_unknown_ones_are_ignored() -> None:
    options = parse_options({**BASE, "INCLUDEHEADERS": "TRUE", "someday": "maybe"})
    assert options.columns[-1] == "headers"


def test_the_three_strategies() -> None:
    assert parse_options({**KAFKA, "assign": '{"b":[1,0],"a":[2]}'}).choice == Assigned((("a", 2), ("b", 0), ("b", 1)))
    assert parse_options({**KAFKA, "subscribe": "b, a,b"}).choice == Subscribed(("b", "a"))
    choice = parse_options({**KAFKA, "subscribePattern": "orders-.*"}).choice
    assert isinstance(choice, Matching)
    assert choice.pattern.pattern == "orders-.*"


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_one_time_wins_over_times_and_times_over_offsets(side: str) -> None:
    option_values: dict[str, str] = {**BASE, f"{side}Offsets": '{"orders":{"0":7}}'}

    def position() -> Any:
        options = parse_options(option_values)
        stated = options.starting if side == "starting" else options.ending
        return stated.values, stated.by_time

    assert position() == ({("orders", 0): 7}, False)
    option_values[f"{side}OffsetsByTimestamp"] = '{"orders":{"0":1000}}'
    assert position() == ({("orders", 0): 1000}, True)
    option_values[f"{side}OffsetsByTimestamp"] = '{"orders":{"0":"1970-01-01T00:00:01Z"}}'
    assert position() == ({("orders", 0): 1000}, True)
    option_values[f"{side}Timestamp"] = "2000"
    assert position() == (2000, True)
    option_values[f"{side}Timestamp"] = "1970-01-01T00:00:02"
    assert position() == (2000, True)
    option_values[f"{side}Timestamp"] = "-1d"
    day_ago, by_time = position()
    assert by_time
    assert 0 <= SystemClock().now_ms() - day_ago - 86_400_000 < 600_000


def test_columns_choose_and_order() -> None:
    assert parse_options({**BASE, "columns": "offset, headers,VALUE"}).columns == ("offset", "headers", "value")
    assert parse_options({**BASE, "columns": "offset", "includeHeaders": "true"}).columns == ("offset",)


def test_kafkas_isolation_level_is_obeyed() -> None:
    assert parse_options({**BASE, "kafka.isolation.level": "read_committed"}).isolation is Isolation.READ_COMMITTED


def test_a_java_clients_login_is_translated_and_its_tuning_left_out() -> None:
    options = parse_options(
        {
            **BASE,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" '
            'password="p\\"w";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "/ca.pem",
            "kafka.ssl.endpoint.identification.algorithm": "",
            "kafka.max.poll.records": "5",
            "kafka.group.id": "g",
        }
    )
    assert options.settings.kafka == {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": 'p"w',
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_a_secret_is_in_no_message_and_in_no_repr() -> None:
    secret = {**BASE, "kafka.sasl.username": "u", "kafka.sasl.password": "hunter2"}
    assert "hunter2" not in repr(parse_options(secret))
    with pytest.raises(InvalidRequest) as raised:
        parse_options({**BASE, "kafka.sasl.jaas.config": 'Other required password="hunter2";'})
    assert "hunter2" not in str(raised.value)


def test_options_travel() -> None:
    options = parse_options({**KAFKA, "subscribePattern": "orders-.*", "startingTimestamp": "5"})
    assert pickle.loads(pickle.dumps(options)) == options


def test_every_setting_of_a_store_is_an_option_of_the_driver() -> None:
    more = {"path_style": "true", "proxy": "http://proxy:3128", "read_timeout": "2s", "max_attempts": "7"}
    options = parse_options(
        BASE | {"tierstate.endpoint": "https://e"} | {f"tierstate.store.{k}": more[k] for k in more}
    )
    store = store_options(options.settings)
    assert (store.endpoint, store.path_style, store.proxy) == ("https://e", True, "http://proxy:3128")
    assert (store.read_timeout, store.max_attempts) == (2.0, 7)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"tierstate.store.max_attempts": "many"}, "option tierstate.store.max_attempts"),
        ({"tierstate.store.path_stile": "true"}, "option tierstate.store.path_stile"),
        ({"tierstate.store": "ftp://host"}, "option tierstate.store"),
        ({"tierstate.cache.memory": "lots"}, "option tierstate.cache.memory"),
    ],
)
def test_a_wrong_setting_is_named_by_the_option_that_gave_it(changed: dict[str, str], says: str) -> None:
    with pytest.raises((InvalidSettings, InvalidRequest), match=says):
        parse_options(BASE | changed)


def test_one_setting_by_two_options_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"tierstate\.region.*tierstate\.store\.region"):
        parse_options(BASE | {"tierstate.region": "eu", "tierstate.store.region": "us"})


def test_settings_of_the_command_line_reach_spark_whole() -> None:
    environ = {"TIERSTATE_STORE__ACCESS_KEY_ID": "id", "TIERSTATE_STORE__SECRET_ACCESS_KEY": "hunter2"}
    option_values = ["store.read_timeout=90s", "store.path_style=false", "format.key_prefix=a/", "cache.memory=1MiB"]
    settings = load_settings(None, option_values, environ, "127.0.0.1:9", "s3://bucket/a", searched=())
    options = parse_options(options_of(settings) | {"subscribe": "orders"})
    assert store_options(options.settings) == store_options(settings)
    assert options.settings.kafka == settings.kafka
    assert (options.settings.format.key_prefix, options.settings.cache.memory) == ("a/", 2**20)
    assert "hunter2" not in repr(options)


def test_the_bucket_alone_needs_no_broker_and_goes_to_the_executors_with_the_rest() -> None:
    option_values = {"tierstate.source": "bucket", "tierstate.asOf": "@-3d", "tierstate.view.history": "2"}
    options = parse_options({"tierstate.store": "file:///store", "subscribe": "orders", **option_values})
    view = pickle.loads(pickle.dumps(options)).settings.view
    assert (view.source, view.as_of, view.history, view.topic_id) == ("bucket", "@-3d", 2, "")
    again = parse_options({"subscribe": "orders", **options_of(options.settings)})
    assert again.settings.view == view
    with pytest.raises(InvalidSettings, match=r"option tierstate\.source"):
        parse_options({**BASE, "tierstate.source": "gateway"})


def test_a_stream_begins_at_the_end_by_default_and_has_no_end() -> None:
    """Spark's Kafka source does the same."""
    assert parse_stream_options(BASE).starting.values == LATEST
    assert parse_stream_options({**BASE, "startingOffsets": " "}).starting.values == LATEST
    assert parse_stream_options({**BASE, "startingOffsets": "earliest"}).starting.values == EARLIEST
    for option in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(InvalidRequest, match=f"option {option} is not for a stream"):
            parse_stream_options({**BASE, option: "latest"})


def test_a_stream_of_the_bucket_alone_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a stream waits for what is new"):
        parse_stream_options({"tierstate.store": "file:///store", "subscribe": "orders", "tierstate.source": "bucket"})


@pytest.mark.parametrize(
    ("said", "seconds"), [("15m", 900), ("10min", 600), ("1500", 1.5), ("250ms", 0.25), ("0", 0), ("2h", 7200)]
)
def test_a_delay_is_written_as_spark_reads_it(said: str, seconds: float) -> None:
    assert parse_stream_options({**BASE, "maxTriggerDelay": said}).limits.max_delay_s == seconds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger is a positive whole number"),
        ({"minOffsetsPerTrigger": "many"}, "option minOffsetsPerTrigger is a positive whole number"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger is above maxOffsets"),
        ({"maxBytesPerTrigger": "much"}, "option maxBytesPerTrigger is a size"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay is a duration"),
    ],
)
def test_a_limit_of_a_stream_that_cannot_be_is_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_stream_options({**BASE, **given})
