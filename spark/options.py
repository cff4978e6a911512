"""Parse the options of ``spark.read.format("tierstate")``: those of Spark's Kafka source, and tierstate's.

Spark passes option names in lower case; error messages have the documented spelling. Unknown options are ignored, as in
Spark's Kafka source, but an unknown ``tierstate.*`` option is an error. ``failOnDataLoss=false`` allows offsets to be
missing when the query is planned. A planned range that is lost later always fails the query (PlannedRangeLost,
SegmentExpired), and so do gaps and corrupt data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..app.opening.gateway_access import GatewayAccess, access_of
from ..app.opening.split_reads import Access, access_by
from ..runtime.units import parse_duration, parse_size
from ..state.errors import InvalidRequest
from ..state.routing import Isolation, Tier
from .columns import TypedValue, chosen_columns, column_types, typed_value
from .kafka_properties import kafka_properties
from .option_table import DEFAULTS, OURS, READ_BY, SETTINGS, with_defaults
from .positions import TIMESTAMP_LOOKUP, Stated, TopicPartition, by_kafkas_lookup, check_batch, check_stream, stated

if TYPE_CHECKING:
    from ..runtime.settings import NextStore, Settings

T = TypeVar("T")
STRATEGIES = ("assign", "subscribe", "subscribePattern")


@dataclass(frozen=True, slots=True)
class Assigned:
    """The choice of exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The choice of all partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """The choice of all partitions of the topics whose whole name matches."""

    pattern: re.Pattern[str]


Choice = Assigned | Subscribed | Matching


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The limits of a micro-batch; None: no limit. ``max_delay_s``: seconds that a batch waits for ``min_offsets``."""

    max_offsets: int | None
    min_offsets: int | None
    max_bytes: int | None
    max_delay_s: float


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a query. They are sent to the executors with credentials in clear text.

    ``access``: the access of every executor. Its key ring is a file on the driver and on every executor; the file's
    content is not sent. ``setting_values``: settings by their names, for planning. ``view_folder``: the folder that
    keeps the view; None: in memory. ``lease``: seconds; 0: none. ``typed``: the type of `value`; None: bytes.
    """

    choice: Choice
    starting: Stated
    ending: Stated
    latest_when_no_match: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    columns: tuple[str, ...]
    access: Access | GatewayAccess
    setting_values: Mapping[str, object] = field(repr=False)
    view_folder: Path | None
    tier: Tier
    isolation: Isolation
    split_bytes: int
    limits: TriggerLimits
    lease: float
    typed: TypedValue | None = None

    @property
    def settings(self) -> Settings:
        """The settings, parsed at each access. A task that reads as planned needs neither them nor their code."""
        from ..runtime.settings_load import settings_from

        return settings_from(self.setting_values)


def parse_options(raw_options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a batch query. Raises InvalidRequest that names the option."""
    options = parse_for_any(raw_options)
    check_batch(options.starting, options.ending)
    return options


def parse_stream_options(raw_options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a stream, which starts at ``latest`` by default. Raises as `parse_options`."""
    named = {name.lower(): value for name, value in raw_options.items()}
    check_stream(named)
    options = parse_for_any(named | {"startingoffsets": named.get("startingoffsets", "").strip() or "latest"})
    if isinstance(options.access, GatewayAccess):
        raise InvalidRequest("a stream follows the tier-state topic itself: leave the option tierstate.gateway out")
    if options.access.bucket_alone:
        raise InvalidRequest("a stream waits for what is new, and the bucket's view (tierstate.source) stands still")
    return options


def parse_for_any(raw_options: Mapping[str, str]) -> SourceOptions:
    """Return the options, without checks for only batches or only streams. Raises InvalidRequest naming the option."""
    named = {name.lower(): value for name, value in raw_options.items()}
    options = with_defaults(named)
    _check_ours(options)
    choice = _choice(options)
    minimum = _count(options, "minPartitions", 9)
    _check_without_effect(options)
    starting, ending = stated(options, "starting"), stated(options, "ending")
    folder = options.get("tierstate.state_dir")
    by_gateway = bool(options.get("tierstate.gateway", "").strip())
    settings = {} if by_gateway else _given(options)
    typed = typed_value(options)
    return SourceOptions(
        choice=choice,
        starting=starting,
        ending=ending,
        latest_when_no_match=_one_of(options, "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}),
        fail_on_data_loss=_boolean(options, "failOnDataLoss"),
        min_partitions=minimum,
        columns=chosen_columns(options.get("columns"), _boolean(options, "includeHeaders"), column_types(typed)),
        access=_gateway(options) if by_gateway else access_by(_settings(settings, options)),
        setting_values=settings,
        view_folder=Path(folder) if folder else None,
        tier=_parsed(options, "tierstate.tier", lambda text: Tier(text.strip().lower()), f"one of {', '.join(Tier)}"),
        isolation=_isolation(options, named),
        split_bytes=_size(options, "tierstate.split_bytes"),
        limits=_limits(options),
        lease=_parsed(options, "tierstate.lease", parse_duration, "a duration like 2h, or 0"),
        typed=typed,
    )


def _check_ours(options: Mapping[str, str]) -> None:
    for name in options:
        prefix, _, rest = name.partition(".")
        if prefix == "tierstate" and rest not in OURS and not rest.startswith(READ_BY):
            near = get_close_matches(rest, OURS, 1)
            raise InvalidRequest(f"option {name} is unknown" + (f"; tierstate.{near[0]} is known" if near else ""))
    if not options.get("tierstate.gateway", "").strip():
        for name in (f"tierstate.{rest}" for rest in OF_A_GATEWAY):
            if options.get(name, "").strip():
                raise InvalidRequest(f"option {name} is for a gateway: tierstate.gateway is not set")


FILES_FOR_A_GATEWAY = ("token_file", "ca_file", "cert_file", "key_file")
OF_A_GATEWAY = (*FILES_FOR_A_GATEWAY, "user")
"""Options that are for a gateway only."""


def _choice(options: Mapping[str, str]) -> Choice:
    chosen = [name for name in STRATEGIES if name.lower() in options]
    if len(chosen) != 1:
        several = f"; {', '.join(chosen)} are given" if chosen else ""
        raise InvalidRequest(f"exactly one of the options {', '.join(STRATEGIES)} must be set{several}")
    name = chosen[0]
    value = options[name.lower()].strip()
    match name:
        case "assign":
            return Assigned(_assigned(value))
        case "subscribe":
            topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
            if not topics:
                raise InvalidRequest("option subscribe names no topic", subscribe=repr(value))
            return Subscribed(topics)
    try:
        pattern = re.compile(value)
    except re.error as error:
        raise InvalidRequest(f"option {name} is not a regular expression: {error}", pattern=repr(value)) from error
    if not value:
        raise InvalidRequest(f"option {name} is empty")
    return Matching(pattern)


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        topics = json.loads(text)
        partitions = {
            (topic, number) for topic, numbers in topics.items() for number in numbers if _is_partition(number)
        }
        whole = sum(len(numbers) for numbers in topics.values())
    except (ValueError, AttributeError, TypeError):
        partitions, whole = set(), 0
    if not partitions or len(partitions) != whole:
        raise InvalidRequest('option assign is JSON like {"topicA":[0,1],"topicB":[2,4]}', got=text)
    return tuple(sorted(partitions))


def _is_partition(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _given(options: Mapping[str, str]) -> dict[str, object]:
    """Return settings by name: those that the options set, and the defaults for readers. Raises InvalidRequest."""
    from ..app.opening.connection import FOR_READERS
    from ..runtime.settings_load import typed

    settings: dict[str, object] = {f"kafka.{name}": value for name, value in kafka_properties(options).items()}
    if not options.get("tierstate.store", "").strip():
        raise InvalidRequest("option tierstate.store must be set: file:///folder or s3://bucket/prefix")
    names = dict[str, str]()
    for name, key in _names(options):
        value = options.get(name, "").strip()
        if value and key in settings:
            raise InvalidRequest(f"options {names[key]} and {name} are one and the same setting")
        if value:
            settings[key], names[key] = typed(value) if value.startswith("[") else value, name
    return {**FOR_READERS, **settings}


def _gateway(options: Mapping[str, str]) -> GatewayAccess:
    """Return the access to a gateway. Raises InvalidRequest for options of cluster and store: a gateway has them."""
    texts = {name: options.get(f"tierstate.{name}", "").strip() for name in OF_A_GATEWAY}
    if by_kafkas_lookup(options):
        raise InvalidRequest(f"option {TIMESTAMP_LOOKUP}: a gateway (tierstate.gateway) finds records only")
    token, ca, chain, key = (Path(file) if (file := texts[name]) else None for name in FILES_FOR_A_GATEWAY)
    access = access_of(
        options["tierstate.gateway"],
        lambda name: f"option tierstate.{name}",
        token_file=token,
        user=texts["user"] or None,
        ca=ca,
        cert_file=chain,
        key_file=key,
    )
    refused = [name for name, _ in _names(options)] + [name for name in options if name.startswith("kafka.")]
    for name in refused:
        value = options.get(name, "").strip()
        if value and value != DEFAULTS.get(name) and name != "kafka.isolation.level" and name != "kafka.group.id":
            raise InvalidRequest(f"option {name}: the gateway (tierstate.gateway) knows that; leave one of them out")
    return access


def _names(options: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the ``tierstate.*`` options that correspond to settings, each with its setting."""
    rests = [rest for name in options if (rest := name.removeprefix("tierstate.")).startswith(READ_BY)]
    return [(f"tierstate.{rest}", key) for rest, key in (SETTINGS | dict(zip(rests, rests, strict=True))).items()]


def _settings(setting_values: Mapping[str, object], options: Mapping[str, str]) -> Settings:
    """Return the settings. Raises InvalidSettings that names the options."""
    from ..runtime.settings_load import settings_from

    names = {key: name for name, key in _names(options) if options.get(name, "").strip()}
    return settings_from(setting_values, lambda key: f"option {names.get(key, key)}")


def options_of(settings: Settings) -> dict[str, str]:
    """Return the settings of a reader that are set, as options. The store's secret key is in clear text."""
    from ..runtime.effective_settings import effective

    short = {key: name for name, key in SETTINGS.items() if key != "state_dir"}
    options = {f"kafka.{name}": value for name, value in settings.kafka.items()}
    for setting in effective(settings):
        is_read = setting.key in short or setting.key.startswith(READ_BY)
        if setting.origin != "default" and is_read and not setting.key.startswith("store.topics."):
            options[f"tierstate.{short.get(setting.key, setting.key)}"] = setting.value
    for section, secret in (
        ("store", settings.store.secret_access_key),
        ("next_store", settings.next_store.secret_access_key),
    ):
        if secret is not None:
            options[f"tierstate.{section}.secret_access_key"] = secret.get_secret_value()
    if settings.store.topics:
        topics = {pattern: _clear(store) for pattern, store in settings.store.topics.items()}
        options["tierstate.store.topics"] = json.dumps(topics)
    return options


def _clear(store: NextStore) -> dict[str, object]:
    """Return the values of a store that are set, with its secret in clear text."""
    values = store.model_dump(exclude_unset=True)
    secret = store.secret_access_key
    return values if secret is None else values | {"secret_access_key": secret.get_secret_value()}


def _one_of(options: Mapping[str, str], name: str, values: Mapping[str, T]) -> T:
    """Return the value of an option's text, in any case. Raises InvalidRequest that names the texts."""
    text = options[name.lower()]
    if text.strip().lower() not in values:
        raise InvalidRequest(f"option {name} is {' or '.join(values)}", got=repr(text))
    return values[text.strip().lower()]


def _parsed(options: Mapping[str, str], name: str, parse: Callable[[str], T], like: str) -> T:
    """Return what ``parse`` makes of an option. Raises InvalidRequest, with ``like``, in place of its ValueError."""
    text = options[name.lower()]
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidRequest(f"option {name} is {like}", got=repr(text)) from error


def _count(options: Mapping[str, str], name: str, digits: int) -> int | None:
    """Return a positive number of at most ``digits`` digits. Returns None if the option is not set."""
    if name.lower() not in options:
        return None
    return _parsed(options, name, partial(_number, digits, 1), "a positive whole number")


def _number(digits: int, least: int, text: str) -> int:
    if not re.fullmatch(f"[0-9]{{1,{digits}}}", text.strip()) or int(text) < least:
        raise ValueError(text)
    return int(text)


def _check_without_effect(options: Mapping[str, str]) -> None:
    """Check the options of Spark's Kafka source that have no effect here, such as its retries."""
    _count(options, "maxRecordsPerPartition", 9)
    for name in ("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"):
        if name.lower() in options:
            _parsed(options, name, partial(_number, 18, 0), "a whole number")


def _boolean(options: Mapping[str, str], name: str) -> bool:
    return _one_of(options, name, {"true": True, "false": False})


def _isolation(options: Mapping[str, str], option_names: Collection[str]) -> Isolation:
    """Return the isolation level. ``option_names``: the options that are set. A default is never a contradiction."""
    names = [name for name in ("isolation", "kafka.isolation.level") if name in option_names] or ["isolation"]
    if len({options[name].strip().lower() for name in names}) > 1:
        raise InvalidRequest("options isolation and kafka.isolation.level disagree")
    return _one_of(options, names[0], {level.value: level for level in Isolation})


def _limits(options: Mapping[str, str]) -> TriggerLimits:
    least, most = _count(options, "minOffsetsPerTrigger", 18), _count(options, "maxOffsetsPerTrigger", 18)
    if least is not None and most is not None and least > most:
        raise InvalidRequest("option minOffsetsPerTrigger is above maxOffsetsPerTrigger", min=least, max=most)
    most_bytes = _size(options, "maxBytesPerTrigger") if "maxbytespertrigger" in options else None
    delay = _parsed(options, "maxTriggerDelay", _delay, "a duration like 15m")
    return TriggerLimits(most, least, most_bytes, delay)


def _delay(text: str) -> float:
    """Return seconds as Spark does: milliseconds without a unit, and min for minutes."""
    text = text.strip()
    return int(text) / 1000 if text.isdecimal() else parse_duration(text.lower().replace("min", "m"))


def _size(options: Mapping[str, str], name: str) -> int:
    return _parsed(options, name, _some_bytes, "a size like 64MiB")


def _some_bytes(text: str) -> int:
    if (size := parse_size(text)) <= 0:
        raise ValueError(text)
    return size
