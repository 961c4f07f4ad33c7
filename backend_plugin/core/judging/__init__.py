"""Derives the verdict on a job (phase, message and logs) from the observed objects; see `verdict_rules`."""
