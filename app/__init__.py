"""The operations that every entry point shares: open both tiers, look, decide, order, recover. Prints nothing."""
