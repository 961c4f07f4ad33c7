"""Checks whether a cluster can run distributed jobs, before a job requests a GPU."""
