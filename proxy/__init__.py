"""A proxy that serves both tiers to unchanged Kafka clients, by Kafka's protocol."""
