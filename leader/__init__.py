"""An agent's work for the partitions that its broker leads: terms, acts, custody. `rules/` decides what to do."""
