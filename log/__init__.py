"""Kafka's log files and record batches."""
