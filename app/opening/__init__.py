"""Open a cluster and its remote tier, the bucket alone, or a gateway, as every entry point needs them."""
