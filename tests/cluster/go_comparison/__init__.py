"""Runs the same tasks with Flyte's own plugin and with ours, side by side on one cluster."""
