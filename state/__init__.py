"""The lowest layer: the facts about a tiered partition, and their meaning. Pure; standard library only."""
