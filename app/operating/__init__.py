"""Run an agent or another service, and carry out what a person orders."""
