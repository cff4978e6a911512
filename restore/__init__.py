"""Bring records, topics and groups back from the bucket, or from both tiers, into any Kafka cluster."""
