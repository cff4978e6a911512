"""Decode the bytes of keys and values, JSON and Avro, to typed columns, with or without a schema registry."""
