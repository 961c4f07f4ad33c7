"""Derives the Flyte phase, message and log links of a job from the observed objects; see `verdict_rules`."""
