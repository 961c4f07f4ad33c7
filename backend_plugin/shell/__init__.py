"""The server: gRPC services, cluster cache, background operations, object stores and settings.

settings, logs, tracing, metrics: configuration and observability.
server: the gRPC server with its port, health service, reflection and shutdown.
credentials, front: authentication, and limits on concurrent calls.
service: the API that Flyte calls. allowed: the allowlist. judge, answers: verdicts and their encoding.
cluster: the interface to a cluster. cache: the last received state of a cluster.
keeper, orders, endings: work outside requests.
outcome, stores, prefixes: task outputs, object stores, and the prefixes that may be read.
job_service, job_encoding, job_watch: the job service. job_logs, log_merge: merged logs of several replicas.
discovery: the file by which commands find a server. whose: log fields.
"""
