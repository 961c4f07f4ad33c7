"""Burn-in: a short job that tests the connections between replicas and measures their bandwidth."""
