"""Convert ``kafka.*`` options to tierstate's ``[kafka]`` settings, which have librdkafka's names.

A job written for Spark's Kafka source has the Java client's names; a job for tierstate may have librdkafka's names.
Options for addresses and logins are passed on, translated, or refused with an error that names the option. Options that
only tune the Java consumer (``max.poll.records``, ``fetch.max.wait.ms``, …) are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..state.errors import InvalidRequest

PASSED = ("bootstrap.servers", "metadata.broker.list", "client.id", "security.protocol", "broker.address.family")
PASSED_PREFIXES = ("sasl.", "ssl.", "https.ca.", "enable.ssl.", "socket.")
REFUSED = {
    "auto.offset.reset": "start and end are set by startingOffsets and endingOffsets",
    "key.deserializer": "keys are returned as bytes; use DataFrame operations",
    "value.deserializer": "values are returned as bytes; use DataFrame operations",
    "enable.auto.commit": "the source commits nothing",
    "interceptor.classes": "interceptors may change records",
}
JAVA_ONLY = re.compile(r"(ssl\.(truststore|keystore)\.|sasl\.(login|client|server)\.|ssl\.(engine|trustmanager)\.).*")
_JAAS = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_JAAS_MODULES = ("PlainLoginModule", "ScramLoginModule")


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of all options that begin with ``kafka.``. Raises InvalidRequest that names the option."""
    from ..app.opening.connection import BUCKET  # also imports pydantic: sessions that read nothing do not need it

    kafka = {name[len("kafka.") :]: value for name, value in options.items() if name.startswith("kafka.")}
    for name, reason in REFUSED.items():
        if name in kafka:
            raise InvalidRequest(f"option kafka.{name} is not supported: {reason}")
    alone = options.get("tierstate.source", "").strip() == BUCKET
    if not alone and not kafka.get("bootstrap.servers", "").strip():
        raise InvalidRequest("option kafka.bootstrap.servers must be set")
    properties = {name: value for name, value in kafka.items() if name in PASSED or name.startswith(PASSED_PREFIXES)}
    _translate_jaas(properties)
    _translate_pem(properties)
    if properties.get("ssl.endpoint.identification.algorithm") == "":  # how the Java client is configured for "none"
        properties["ssl.endpoint.identification.algorithm"] = "none"
    for name in properties:
        if JAVA_ONLY.fullmatch(name):
            raise InvalidRequest(
                f"option kafka.{name} is the Java client's alone; give PEM files in kafka.ssl.ca.location, "
                "kafka.ssl.certificate.location and kafka.ssl.key.location, or kafka.sasl.username and .password"
            )
    return properties


def _translate_jaas(properties: dict[str, str]) -> None:
    text = properties.pop("sasl.jaas.config", None)
    if text is None:
        return
    login = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS.findall(text)}
    if not any(module in text for module in _JAAS_MODULES) or set(login) != {"username", "password"}:
        raise InvalidRequest(  # the text is not repeated: it contains a secret
            "option kafka.sasl.jaas.config: only PlainLoginModule and ScramLoginModule with username and password are "
            "understood; otherwise use librdkafka's sasl properties"
        )
    properties.setdefault("sasl.username", login["username"])
    properties.setdefault("sasl.password", login["password"])
    properties.setdefault("sasl.mechanism", "PLAIN")


def _translate_pem(properties: dict[str, str]) -> None:
    """Rename Java's PEM stores: they are plain PEM files, which librdkafka reads under other names."""
    if properties.get("ssl.truststore.type", "").upper() == "PEM" and "ssl.truststore.location" in properties:
        del properties["ssl.truststore.type"]
        properties["ssl.ca.location"] = properties.pop("ssl.truststore.location")
    if properties.get("ssl.keystore.type", "").upper() == "PEM" and "ssl.keystore.location" in properties:
        del properties["ssl.keystore.type"]
        store = properties.pop("ssl.keystore.location")
        properties["ssl.certificate.location"] = properties["ssl.key.location"] = store
