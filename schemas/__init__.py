"""The record form of facts: Avro single-object encoding, and JSON."""
