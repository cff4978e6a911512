"""What every face does with the parts: open both tiers, look, decide, order, recover. Prints nothing."""
