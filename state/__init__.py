"""The ground floor: what can be said about a tiered partition, and what it means. Pure; standard library only."""
