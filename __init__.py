"""tierstate: tiered storage for any Apache Kafka cluster, without touching the broker."""

__all__: list[str] = []
