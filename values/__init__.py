"""Decode keys and values, as JSON or Avro, to typed columns, with or without a schema registry."""
