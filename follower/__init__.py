"""The follower role: materialises the tier-state topic as a view."""
