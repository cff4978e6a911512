"""Topics that Kafka tiered itself (KIP-405) with Aiven's plugin: the view of them, and how they are read."""
