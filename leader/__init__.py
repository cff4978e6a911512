"""An agent's work for the partitions that its broker leads: terms, operations, custody. `rules/` decides what to do."""
