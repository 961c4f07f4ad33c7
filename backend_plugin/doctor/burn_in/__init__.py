"""A small job that is really run, where it is asked for: whether replicas reach each other, and how fast.

program: what its ranks do; it is sent to the cluster as text, and never imported here.
job: the job of a task, with that in place of its command.
results: what its rank 0 has written, and what that means.
running: making it, waiting for it, and deleting it whatever happens.
"""
