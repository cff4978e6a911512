"""The options of ``spark.read.format("tierstate")``: name, default, meaning. `options.py` takes names and defaults from
here, and so does `docs/options.md`. Options that begin with ``kafka.`` are in `kafka_properties.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """``default``: as people write it; None: no default. ``setting``: the same setting in `docs/settings.md`."""

    name: str
    meaning: str
    default: str | None = None
    setting: str | None = None


GROUPS: dict[str, tuple[Option, ...]] = {
    "Which partitions: exactly one of": (
        Option("subscribe", "Topics, with commas between them."),
        Option("subscribePattern", "A regular expression that the whole name of a topic matches."),
        Option("assign", 'Partitions: `{"orders":[0,1]}`. Takes a topic id where the cluster has the topic no more.'),
    ),
    "From where, to where: of each side, the first that is given wins": (
        Option(
            "startingTimestamp",
            "The first record at or after it, in every partition: ms since the epoch, ISO 8601, or `-3d`.",
        ),
        Option("startingOffsetsByTimestamp", 'The same by partition: `{"orders":{"0":1767225600000}}`.'),
        Option(
            "startingOffsets",
            '`earliest` or `{"orders":{"0":23,"1":-2}}`; -2 is earliest. A stream: also `latest`, its default, and -1.',
            "earliest",
        ),
        Option(
            "startingOffsetsByTimestampStrategy",
            "Where no record is that young: `error`, or `latest`: nothing is read.",
            "error",
        ),
        Option("endingTimestamp", "Up to the first record at or after it; the end, where there is none."),
        Option("endingOffsetsByTimestamp", "The same by partition."),
        Option("endingOffsets", '`latest` or `{"orders":{"0":99,"1":-1}}`, exclusive; -1 is latest.', "latest"),
    ),
    "How much a micro-batch of a stream has": (
        Option("maxOffsetsPerTrigger", "At most so many offsets, shared by what is left of each partition."),
        Option("minOffsetsPerTrigger", "No batch of fewer, unless `maxTriggerDelay` is over."),
        Option("maxTriggerDelay", "How long a batch waits for `minOffsetsPerTrigger`.", "15m"),
        Option("maxBytesPerTrigger", "About so many bytes of log: `256MiB`."),
    ),
    "What comes": (
        Option("columns", "Of [these](#columns), in this order, with commas between them."),
        Option("includeHeaders", "Without `columns`: whether `headers` is one of them.", "false"),
        Option(
            "value.format",
            "Of the column `value`: `binary`, `json` or `avro`: [a struct](spark.md#typed-values).",
            "binary",
        ),
        Option("value.schema", "Of that struct: `id bigint, tags array<string>`; for `avro` an Avro schema as JSON."),
        Option("value.registry.url", "Of `avro`: a schema registry, whose ids the values begin with."),
        Option("isolation", "`read_committed` or `read_uncommitted`.", "read_uncommitted"),
        Option("kafka.isolation.level", "The same, as it is called for Spark's Kafka source."),
        Option("failOnDataLoss", "`false`: of offsets that are not there any more at planning, what is there.", "true"),
        Option("minPartitions", "At least so many Spark partitions."),
    ),
    "Where from": (
        Option(
            "kafka.bootstrap.servers",
            "The cluster. Must be set, but with `tierstate.source=bucket` and `tierstate.gateway`.",
        ),
        Option(
            "tierstate.store",
            "The object store: `file:///folder`, `s3://bucket/prefix`, gs://, az://. Must be set, without a gateway.",
            setting="store.url",
        ),
        Option("tierstate.endpoint", "Of the store, where it is not the cloud's own.", setting="store.endpoint"),
        Option("tierstate.region", "Of the store.", setting="store.region"),
        Option(
            "tierstate.keyring",
            "Key ring file, for encrypted segments: on the driver and on every executor.",
            setting="encryption.keyring",
        ),
        Option("tierstate.tier_state_topic", "Where the facts are.", "_tier-state", "tier_state.topic"),
        Option(
            "tierstate.source",
            "`bucket`: no broker is asked, the view comes from the bucket, and only what is remote is read.",
            setting="view.source",
        ),
        Option(
            "tierstate.asOf",
            "With `bucket`: the view of `@TIME` (`@2026-11-21T10:00:00Z`, `@-3d`), or of one tier-state partition "
            "below a position (`0/1234`).",
            setting="view.as_of",
        ),
        Option(
            "tierstate.state_dir",
            "Folder on the driver that keeps the view between queries; without, in memory.",
            setting="state_dir",
        ),
        Option(
            "tierstate.gateway",
            "URL of a gateway, in place of cluster and store: [it plans and hands out](spark.md#through-a-gateway) "
            "what its user may read. Batches alone.",
        ),
        Option(
            "tierstate.token_file",
            "With a gateway: a file on the driver with a bearer token; else `TIERSTATE_TOKEN` in its environment.",
        ),
        Option("tierstate.user", "With a gateway: a Kafka user; its password is in `TIERSTATE_PASSWORD`."),
        Option(
            "tierstate.ca_file",
            "With a gateway: authorities that it is known by, PEM, on the driver and on every executor.",
        ),
        Option(
            "tierstate.cert_file",
            "With a gateway: a client's certificate that says who asks, PEM, on the driver and on every executor.",
        ),
        Option("tierstate.key_file", "Its key, where it is not in that file."),
        Option("tierstate.tier", "`auto`, `prefer-remote` (spares the brokers), `local`, `remote`.", "prefer-remote"),
        Option("tierstate.lease", "How long what a query reads is kept from expiring; `0`: it is not.", "1h"),
        # as spark.sql.files.maxPartitionBytes: a Spark partition costs 31 to 48 ms, so few and large ones are best
        Option("tierstate.split_bytes", "The most log bytes of one Spark partition.", "256MiB"),
    ),
    "Accepted from jobs for Spark's Kafka source, without effect": (
        Option("maxRecordsPerPartition", "Partitions are cut by bytes."),
        Option("kafkaConsumer.pollTimeoutMs", "There is no such consumer."),
        Option("fetchOffset.numRetries", "What can be retried is."),
        Option("fetchOffset.retryIntervalMs", "The same."),
    ),
}
KAFKA_SOURCE: dict[str, tuple[str, str]] = {
    "assign": ("", ""),
    "subscribe": ("", ""),
    "subscribePattern": ("", "The same; a regular expression of Python, not of Java."),
    "kafka.bootstrap.servers": ("", ""),
    "startingTimestamp": ("", ""),
    "startingOffsetsByTimestamp": ("", ""),
    "startingOffsets": ("`earliest`, a stream `latest`", ""),
    "startingOffsetsByTimestampStrategy": ("`error`", ""),
    "endingTimestamp": ("", ""),
    "endingOffsetsByTimestamp": ("", ""),
    "endingOffsets": ("`latest`", ""),
    "failOnDataLoss": (
        "`true`",
        "The same at planning; what is planned and lost later fails the query in any case. `false` in a stream,"
        " there and here: a partition that the cluster does not name for one batch is read from its beginning when it"
        " is back.",
    ),
    "includeHeaders": ("`false`", ""),
    "minPartitions": ("", ""),
    "maxRecordsPerPartition": ("", "No effect: `tierstate.split_bytes` cuts by bytes."),
    "maxOffsetsPerTrigger": ("", ""),
    "minOffsetsPerTrigger": ("", ""),
    "maxTriggerDelay": ("`15m`", ""),
    "kafkaConsumer.pollTimeoutMs": ("`120000`", "No effect: there is no such consumer."),
    "fetchOffset.numRetries": ("`3`", "No effect: what can be retried is."),
    "fetchOffset.retryIntervalMs": ("`10`", "No effect: the same."),
    "groupIdPrefix": ("`spark-kafka-source`", "Ignored: readers are in no group, and need no right on one."),
    "kafka.group.id": ("", "Ignored: the same."),
    "kafka.isolation.level": ("`read_uncommitted`", ""),
    "kafka.*": ("", "[Passed on, translated, refused or left out](options.md#spark-the-kafka-client)."),
}
"""Every option of Spark's Kafka source 4.2: its default there, and how it differs here; empty: it is the same."""
OPTIONS = tuple(option for group in GROUPS.values() for option in group)
OURS = tuple(
    option.name.removeprefix("tierstate.").lower() for option in OPTIONS if option.name.startswith("tierstate.")
)
SETTINGS = {
    option.name.removeprefix("tierstate.").lower(): option.setting for option in OPTIONS if option.setting is not None
}
"""The setting of each option that has another name than its setting."""
READ_BY = ("store.", "cache.", "view.topic_id", "view.history", "format.key_prefix", "format.salt_bits")
"""Settings with these prefixes are options too, ``tierstate.store.path_style``: readers depend on them."""
DEFAULTS = {option.name.lower(): option.default for option in OPTIONS if option.default is not None}


def with_defaults(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options with defaults, by lower-case name, as Spark passes options."""
    return DEFAULTS | dict(given)
