"""What an agent does for the partitions that its broker leads: terms, acts, custody; what to do, `rules/` says."""
