"""Speed, side by side with peers; ratios first. Nothing here is asserted."""
