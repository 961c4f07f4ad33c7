"""The server: gRPC services, cluster cache, background operations, object stores and settings.

settings, logging_setup, tracing, metrics: configuration and observability.
server: the gRPC server with its port, health service, reflection and shutdown.
credentials, rpc_middleware: authentication, and limits on concurrent calls.
connector_service: the API that Flyte calls. allowlist: namespaces and output prefixes that are served.
judge, task_responses: verdicts and their encoding.
cluster: the interface to a cluster. cache, cached_job: the last received state of a cluster.
reconciler, background_operations, output_collector: work outside requests.
output_reader, output_stores, output_prefixes: task outputs, object stores, and the prefixes that may be read.
job_service, job_encoding, job_watch: the job service. job_logs, log_merge: merged logs of several replicas.
server_file: the file by which commands find a server. log_fields: the fields of log lines.
"""
