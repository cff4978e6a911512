"""The options of ``spark.read.format("tierstate")``: name, default, meaning. `options.py` and `docs/options.md` take
names and defaults from this table. Options that begin with ``kafka.`` are in `kafka_properties.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``default``: None if there is none. ``setting``: the name of the setting in `docs/settings.md`."""

    name: str
    meaning: str
    default: str | None = None
    setting: str | None = None


GROUPS: dict[str, tuple[Option, ...]] = {
    "Which partitions: exactly one of": (
        Option("subscribe", "Topics, with commas between them."),
        Option("subscribePattern", "A regular expression that the whole name of a topic matches."),
        Option("assign", 'Partitions: `{"orders":[0,1]}`. Takes a topic id if the topic was deleted from the cluster.'),
    ),
    "Start and end: of each, the first option that is set wins": (
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
            "If no record is that young: `error`, or `latest`: nothing is read.",
            "error",
        ),
        Option(
            "timestampLookup",
            "`records`: a time means a record. `kafka`: also a transaction marker, as in Spark's Kafka source.",
            "records",
        ),
        Option("endingTimestamp", "Up to the first record at or after it, else to the end."),
        Option("endingOffsetsByTimestamp", "The same by partition."),
        Option("endingOffsets", '`latest` or `{"orders":{"0":99,"1":-1}}`, exclusive; -1 is latest.', "latest"),
    ),
    "Limits of a micro-batch of a stream": (
        Option("maxOffsetsPerTrigger", "At most so many offsets, shared by the partitions."),
        Option("minOffsetsPerTrigger", "No batch of fewer, until `maxTriggerDelay` is over."),
        Option("maxTriggerDelay", "How long a batch waits for `minOffsetsPerTrigger`.", "15m"),
        Option("maxBytesPerTrigger", "About so many bytes of log: `256MiB`."),
    ),
    "Columns and records": (
        Option("columns", "Some of [these](#columns), in this order, separated by commas."),
        Option("includeHeaders", "Without `columns`: whether `headers` is one of them.", "false"),
        Option(
            "value.format",
            "Format of `value`: `binary`, `json` or `avro` ([a struct](spark.md#typed-values)).",
            "binary",
        ),
        Option("value.schema", "Its schema: `id bigint, tags array<string>`; for `avro` an Avro schema as JSON."),
        Option("value.registry.url", "For `avro`: a schema registry; the values begin with its ids."),
        Option("isolation", "`read_committed` or `read_uncommitted`.", "read_uncommitted"),
        Option("kafka.isolation.level", "The same, by its name in Spark's Kafka source."),
        Option("failOnDataLoss", "`false`: offsets that are missing at planning are left out.", "true"),
        Option("minPartitions", "About so many Spark partitions, at least one for each of Kafka's."),
    ),
    "Cluster and store": (
        Option(
            "kafka.bootstrap.servers",
            "The cluster. Required, except with `tierstate.source=bucket` or `tierstate.gateway`.",
        ),
        Option(
            "tierstate.store",
            "The object store: `file:///folder`, `s3://bucket/prefix`, gs://, az://. Required without a gateway.",
            setting="store.url",
        ),
        Option("tierstate.endpoint", "Endpoint of the store, if it is not the cloud's own.", setting="store.endpoint"),
        Option("tierstate.region", "Region of the store.", setting="store.region"),
        Option(
            "tierstate.keyring",
            "Key ring file, for encrypted segments: on the driver and on every executor.",
            setting="encryption.keyring",
        ),
        Option("tierstate.tier_state_topic", "The tier-state topic.", "_tier-state", "tier_state.topic"),
        Option(
            "tierstate.source",
            "`bucket`: no broker is asked; the view comes from the bucket, and only the remote tier is read. `kip405`: "
            "[what Kafka tiered itself](native-tiering.md).",
            setting="view.source",
        ),
        Option(
            "tierstate.kip405_prefixes",
            "With `kip405`: values that the plugin's `key.prefix` has had.",
            setting="kip405.key_prefixes",
        ),
        Option(
            "tierstate.asOf",
            "With `bucket`: the view of `@TIME` (`@2026-11-21T10:00:00Z`, `@-3d`), or of one tier-state partition "
            "below a position (`0/1234`).",
            setting="view.as_of",
        ),
        Option(
            "tierstate.state_dir",
            "Folder on the driver that keeps the view between queries; by default in memory.",
            setting="state_dir",
        ),
        Option(
            "tierstate.gateway",
            "URL of a gateway, instead of cluster and store: [it plans](spark.md#through-a-gateway). Batches only.",
        ),
        Option(
            "tierstate.token_file",
            "With a gateway: a file on the driver with a bearer token; else `TIERSTATE_TOKEN` in its environment.",
        ),
        Option("tierstate.user", "With a gateway: a Kafka user; its password is in `TIERSTATE_PASSWORD`."),
        Option(
            "tierstate.ca_file",
            "With a gateway: its certificate authorities, PEM, on the driver and on every executor.",
        ),
        Option(
            "tierstate.cert_file",
            "With a gateway: a client certificate, PEM, on the driver and on every executor.",
        ),
        Option("tierstate.key_file", "Its key, if it is not in that file."),
        Option("tierstate.tier", "`auto`, `prefer-remote` (spares the brokers), `local`, `remote`.", "prefer-remote"),
        Option("tierstate.lease", "How long remote segments of a query are kept from expiring; `0`: no lease.", "1h"),
        # as spark.sql.files.maxPartitionBytes: a Spark partition costs 31 to 48 ms, so few and large ones are best
        Option("tierstate.split_bytes", "The most log bytes of one Spark partition.", "256MiB"),
    ),
    "Accepted from jobs for Spark's Kafka source, without effect": (
        Option("maxRecordsPerPartition", "Partitions are cut by bytes."),
        Option("kafkaConsumer.pollTimeoutMs", "There is no such consumer."),
        Option("fetchOffset.numRetries", "Failed requests are retried."),
        Option("fetchOffset.retryIntervalMs", "The same."),
    ),
}
OPTIONS = tuple(option for group in GROUPS.values() for option in group)
OURS = tuple(
    option.name.removeprefix("tierstate.").lower() for option in OPTIONS if option.name.startswith("tierstate.")
)
SETTINGS = {
    option.name.removeprefix("tierstate.").lower(): option.setting for option in OPTIONS if option.setting is not None
}
"""The setting of each option that sets one, by the option's lower-case name without ``tierstate.``."""
READ_BY = ("store.", "next_store.", "cache.", "view.topic_id", "view.history", "format.key_prefix", "format.salt_bits")
"""Settings with these prefixes are options, too, such as ``tierstate.store.path_style``: readers depend on them."""
DEFAULTS = {option.name.lower(): option.default for option in OPTIONS if option.default is not None}


def with_defaults(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with defaults, by lower-case name, as Spark passes options."""
    return DEFAULTS | dict(options)
