"""A cluster in one process: the same manifests run as processes of this machine.

admission: PURE; what the API server and the operator's webhook refuse and fill in.
controller: PURE; the training-operator's state machine.
nodes: PURE; what the emulated nodes hold, and where a pod fits.
store: the objects, durable, and who is told of their changes.
kubelet: pods as process groups.
cluster: ties them together behind `shell.cluster.Cluster`.
"""
