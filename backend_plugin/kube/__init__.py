"""A Kubernetes cluster behind `shell.cluster.Cluster`. Importing the package loads no other module.

- options: options of one cluster.
- cluster: the implementation of the protocol.
- credentials: address of the cluster and credentials, from the official client package.
- connection: HTTP and TLS.
- api: one API request with its retries.
- answers: API errors and their treatment.
- clock: the time in the cluster.
- permissions: missing RBAC rules, each logged once.
- container_logs, lines: container logs.
- kinds: the watched kinds, one row each.
- parsed: the types that parsers return.
- wire: parser for JSON. pod_wire, envelope, frames: parser for pods in protobuf.
- course: pure state machine of list, watch and backoff.
- reflector: lists and watches one kind in one namespace.
- gathering: merges the records of several reflectors.
"""
