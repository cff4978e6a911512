"""A real Kafka (and stores) on this machine, for the demo, the tests and people who play."""
