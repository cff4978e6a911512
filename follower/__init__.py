"""The follower role: the tier-state topic materialised."""
