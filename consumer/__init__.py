"""A consumer that reads both tiers as one log."""
