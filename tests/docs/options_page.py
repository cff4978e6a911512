"""The tables of `docs/options.md` and `docs/spark.md`, generated from code.

python -m tests.docs.options_page            # print what no longer holds
python -m tests.docs.options_page --write    # put it right
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from tests.docs.generated import table, with_parts
from tierstate import read_records
from tierstate.log.record_columns import FIELDS
from tierstate.runtime.settings_keys import FIELDS as SETTING_FIELDS
from tierstate.spark.columns import SPARK_TYPES
from tierstate.spark.kafka_properties import PASSED, PASSED_PREFIXES, REFUSED
from tierstate.spark.option_table import GROUPS, OPTIONS, READ_BY

PAGE = Path(__file__).parents[2] / "docs" / "options.md"
SPARK_PAGE = PAGE.with_name("spark.md")
PYTHON = {
    "kafka": "librdkafka's properties, `bootstrap.servers` at least.",
    "store": "`file:///folder`, `s3://bucket/prefix`, gs://, az://.",
    "topic": "Its name, or the topic id of a deleted topic.",
    "partition": "",
    "start": "First offset.",
    "end": "The offset after the last.",
    "isolation": "`read_committed` or `read_uncommitted`, which shows aborted transactions too.",
    "settings": 'Any [setting](settings.md) by its name: `{"store.endpoint": "https://…", "encryption.keyring": "…"}`.',
}
"""The meaning of each parameter of `read_records`."""
BY_TIME = "The same for records; `timestampLookup=kafka` also finds transaction markers, as there."
KAFKA_SOURCE: dict[str, tuple[str, str]] = {
    "assign": ("", ""),
    "subscribe": ("", ""),
    "subscribePattern": ("", "The same; a regular expression of Python, not of Java."),
    "kafka.bootstrap.servers": ("", ""),
    "startingTimestamp": ("", BY_TIME),
    "startingOffsetsByTimestamp": ("", BY_TIME),
    "startingOffsets": ("`earliest`, a stream `latest`", ""),
    "startingOffsetsByTimestampStrategy": ("`error`", ""),
    "endingTimestamp": ("", BY_TIME),
    "endingOffsetsByTimestamp": ("", BY_TIME),
    "endingOffsets": ("`latest`", ""),
    "failOnDataLoss": (
        "`true`",
        "The same at planning; offsets that are lost after planning fail the query in any case. `false` in a stream,"
        " there and here: a partition that the cluster omits for one batch is read from its beginning afterwards.",
    ),
    "includeHeaders": ("`false`", ""),
    "minPartitions": (
        "",
        "The same; `tierstate.split_bytes` can add tasks. Without it, partitions of a"
        " stream share a task if they have up to 4 MiB.",
    ),
    "maxRecordsPerPartition": ("", "No effect: `tierstate.split_bytes` cuts by bytes."),
    "maxOffsetsPerTrigger": ("", ""),
    "minOffsetsPerTrigger": ("", ""),
    "maxTriggerDelay": ("`15m`", ""),
    "kafkaConsumer.pollTimeoutMs": ("`120000`", "No effect: there is no such consumer."),
    "fetchOffset.numRetries": ("`3`", "No effect: failed requests are retried."),
    "fetchOffset.retryIntervalMs": ("`10`", "No effect: the same."),
    "groupIdPrefix": ("`spark-kafka-source`", "Ignored: readers are in no group, and need no right on one."),
    "kafka.group.id": ("", "Ignored: the same."),
    "kafka.isolation.level": ("`read_uncommitted`", ""),
    "kafka.*": ("", "[Passed on, translated, refused or left out](options.md#spark-the-kafka-client)."),
}
"""Every option of Spark 4.2's Kafka source: its default there, and its difference here. An empty text means none."""
COLUMNS = {
    "key": "",
    "value": "",
    "topic": "",
    "partition": "",
    "offset": "",
    "timestamp": "Kafka's milliseconds.",
    "timestampType": "0: the producer's time; 1: the broker's, at append.",
    "headers": "In the record's order; null without any. Spark: only on request.",
}


def parts() -> dict[str, str]:
    """Return the generated parts, by the name of their place in the page."""
    return {"spark": _spark(), "kafka": _kafka(), "python": _python(), "columns": _columns()}


def spark_parts() -> dict[str, str]:
    """Return the table of `docs/spark.md`: options of the Kafka source with the same treatment are one line."""
    known = {option.name for option in OPTIONS}
    options: dict[str, list[str]] = {}
    for name, (default, here) in KAFKA_SOURCE.items():
        same = "The same." if name in known else "Ignored: for streams, which are not read yet."
        options.setdefault(here or same, []).append(f"`{name}`" + (f" ({default})" if default else ""))
    rows = [(", ".join(names), here) for here, names in options.items()]
    return {"kafka-source": table(("Spark's Kafka source (default there)", "here"), rows)}


def _spark() -> str:
    groups = []
    for title, options in GROUPS.items():
        rows = [(f"`{each.name}`" + (f" (`{each.default}`)" if each.default else ""), each.meaning) for each in options]
        if title.endswith("without effect"):
            names = ", ".join(name for name, _ in rows)
            groups.append(f"**{title}**: {names} ([why](spark.md#from-sparks-kafka-source)).\n")
        else:
            groups.append(f"**{title}**\n\n" + table(("option (default)", ""), rows))
    others = [f"tierstate.{name}" for path in SETTING_FIELDS if (name := ".".join(path)).startswith(READ_BY)]
    known = {option.setting for option in OPTIONS}
    listed = ", ".join(f"`{name}`" for name in others if name.removeprefix("tierstate.") not in known)
    groups.append(f"**Any other setting of readers**, as in [settings](settings.md): {listed}.\n")
    return "\n".join(groups)


def _kafka() -> str:
    passed = ", ".join(f"`kafka.{name}`" for name in (*PASSED, *(f"{prefix}*" for prefix in PASSED_PREFIXES)))
    refused = [(f"`kafka.{name}`", f"refused: {why}") for name, why in REFUSED.items()]
    return table(("option", ""), [(passed, "passed on"), *refused])


def _python() -> str:
    rows = []
    for name, parameter in inspect.signature(read_records).parameters.items():
        must = parameter.default is parameter.empty
        default = "" if must or parameter.default is None else f"`{parameter.default}`"
        named = "by name" if parameter.kind is parameter.KEYWORD_ONLY else ""
        rows.append((f"`{name}`", f"`{parameter.annotation}`", default, named, PYTHON[name]))
    return table(("parameter", "type", "default", "", ""), rows)


def _columns() -> str:
    rows = [
        (f"`{name}`", f"`{SPARK_TYPES[name].simpleString()}`", f"`{FIELDS[name]}`", COLUMNS[name]) for name in FIELDS
    ]
    return table(("column", "Spark", "Arrow", ""), rows)


def main() -> int:
    wrong = 0
    for path, generated in ((PAGE, parts()), (SPARK_PAGE, spark_parts())):
        page = path.read_text()
        now = with_parts(page, generated)
        if "--write" in sys.argv[1:]:
            path.write_text(now)
        elif now != page:
            print(f"docs/{path.name} is not what the code says: python -m tests.docs.options_page --write")
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
