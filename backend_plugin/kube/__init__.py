"""A Kubernetes cluster behind `shell.cluster.Cluster`. The package itself loads nothing.

options: what a server is told of its cluster. cluster: the protocol's words; ties all of it together.
credentials: where the cluster is and who we are, by the official package. connection: HTTP and TLS.
api: one request, as often as its time allows. answers: what the API server says when it does not say yes.
clock: what time it is there. permissions: what we lack, named once, with the rule to add.
container_logs, lines: what containers wrote.
kinds: what is followed, one row each. wire, pod_wire: bytes → the few fields that are read → records.
course: PURE; list or watch, from where, after which pause. reflector: does it, for one kind and place.
gathering: what several reflectors hold of one kind of record, told as one.
"""
