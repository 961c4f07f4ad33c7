"""The platform's half: task template → job in the cluster → phase.

core: pure; `core.pipeline` is the page to read first.
execution: Flyte's word for who asks, in ours.
shell: the server: what talks to Flyte, to a cluster, to an object store.
embedded: a cluster in one process, behind the protocol of `shell.cluster`.
client: what people ask a running server, as functions.
flytekit_connector: the server's parts behind flytekit's own.
cli: what people type; the only place that composes the others.
"""
