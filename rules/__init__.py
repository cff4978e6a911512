"""Decisions about what to do, and why not. Pure functions of values: no access to Kafka, a disk or a clock."""
