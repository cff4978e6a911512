"""Everything said to Kafka."""
