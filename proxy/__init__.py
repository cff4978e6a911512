"""Kafka's protocol in front of both tiers: any Kafka client, unchanged."""
