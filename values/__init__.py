"""What the bytes of keys and values mean: JSON and Avro as typed columns, with or without a schema registry."""
