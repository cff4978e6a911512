"""The parts that every process has: a clock, ids, settings, listeners, metrics, logs, a management port."""
