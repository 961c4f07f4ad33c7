"""Checks whether a cluster can run distributed jobs, before a job requests a GPU.

facts: the observed values.
check: the types of a check and its results.
checks: one module per subject, each with a table of pure functions from facts to violations.
table: all checks.
verdict: runs every check against the facts.
about: the first lines of a report, which describe the plan for the task.
pods: the pods of a job, as the training operator creates them.
probe: the default task, used if the user names none.
roles: commands that create missing roles.
dry_run: dry runs of planned manifests.
gathering: collects the facts from the API server.
looks: the requests for these facts.
outside: tests of stores and connectors.
burn_in: a small job that runs on the cluster, if the user requests it.
"""
