"""Checks whether a cluster can run distributed jobs, before a job requests a GPU.

facts: the observed values.
check: the types of a check and its results.
checks: one module per subject, each with a table of pure functions from facts to violations.
operators: the checks and manifests that depend on the kind of job, one folder per operator.
registry: all checks.
run_checks: runs all checks against the facts.
summary: the first lines of a report.
role_pods: the pods of a job, and their total requests.
sample_task: the default task.
fact_collector, queries, cluster_reader: collect the facts from the API server.
access_review, rbac_commands: missing permissions, and the commands that grant them.
dry_run: dry runs of planned manifests.
external_probes, connectivity: tests of stores and connectors.
burn_in: a small job that runs on the cluster, if the user requests it.
"""
