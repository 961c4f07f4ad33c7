"""The same tasks through Flyte's own plugin and through ours, side by side on one cluster.

`sides` are the two; `scenarios` are what is done to both, and `kubelet` writes what becomes of their pods.
`told` is what a user was told of one, and what it took; `table` is a page of that.
"""
