"""What talks to others: Flyte, a cluster, an object store. As little thought as possible.

cluster: what the service may ask of any cluster.
cache: what a cluster was last seen to hold.
outcome: what a task has left in the object store.
service, keeper: the calls, and what goes on behind them.
server: the process around them.
"""
