"""What talks to others: Flyte, a cluster, an object store, people. As little thought as possible.

settings, logs, tracing, metrics: what a server is told, and what it tells of itself.
server: the process: port, health, reflection, end.
credentials, front: who may call, and how many at a time.
service: Flyte's calls. allowed: what it does for nobody. judge, answers: what is believed, in Flyte's words.
cluster: what may be asked of any cluster. cache: what it was last seen to hold.
keeper, orders, endings: what goes on behind the calls.
outcome, stores, prefixes: what a task has left, how that is read, and where anything may be read.
people, people_records, people_watch: people's calls. job_logs, log_merge: lines of several replicas.
discovery: how commands find a server. whose: what a line of the log is about.
"""
