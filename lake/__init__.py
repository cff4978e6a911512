"""Both tiers as tables: Parquet files that are proven equal to the log."""
