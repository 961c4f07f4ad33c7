"""Runs the same tasks with Flyte's own plugin and with ours, side by side on one cluster.

`sides` has the two platforms, `scenarios` the events in both, and `kubelet` writes the statuses of their
pods. `told` records what a user sees and the cost; `table` writes a page of the records.
"""
