"""Reads logs by Fetch from their leaders, for agents that have no access to the brokers' disks."""
