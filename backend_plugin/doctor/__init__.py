"""What a distributed job needs of a cluster, looked at before the first GPU is asked for.

facts: what was seen, as values.
check: what one check is, and what it finds.
checks: a module a subject, each a table of pure functions from facts to findings.
table: all of them.
verdict: every check against the facts.
about: what would be done with a task, and why.
pods: a job's pods, as its operator makes them.
probe: the task that stands for all where none is named.
roles: commands that create missing roles.
dry_run: manifests tried, and not made.
gathering: looking, over the API server; looks: what is looked at. outside: stores and connectors.
burn_in: a small job that is really run, where a person asks for it.
"""
