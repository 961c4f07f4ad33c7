"""A Kubernetes cluster behind `shell.cluster.Cluster`. The package itself loads nothing.

options: what a server is told of its cluster. cluster: the protocol's words; ties all of it together.
credentials: where the cluster is and who we are, by the official package. connection: HTTP and TLS.
api: one request, as often as its time allows. answers: what the API server says when it does not say yes.
clock: what time it is there. permissions: what we lack, named once, with the rule to add.
container_logs, lines: what containers wrote.
kinds: what is followed, one row each. parsed: what of it bytes come to. wire: JSON, a line of a watch each;
pod_wire, envelope, frames: protobuf, which pods come in.
course: PURE; list or watch, from where, after which pause. reflector: does it, for one kind and place.
gathering: merges the records of several reflectors.
"""
