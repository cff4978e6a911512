"""Spark looks for sources in top-level modules named ``pyspark_*``: this one makes ``format("tierstate")`` known."""

from tierstate.spark.source import DefaultSource as DefaultSource
