"""The backend: it creates the job for a Flyte task template and reports the phase of the job.

core: pure functions; start with `core.pipeline`.
execution: the conversion of Flyte's request messages to the types of the core.
shell: the server, with the interfaces to Flyte, a cluster and object stores.
embedded: an emulated cluster, behind the protocol of `shell.cluster`.
client: the Python client of a running server.
flytekit_connector: an adapter for flytekit's connector server.
cli: the commands, and the only package that composes the others.
"""
