"""A real Kafka on this machine, for the demo, the tests and ``tierstate sandbox``."""
