"""Requests to Kafka, and its answers."""
