"""Look at topics, partitions and processes, and describe them. Nothing here changes anything."""
