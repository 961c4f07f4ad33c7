"""Burn-in: a small job that measures whether replicas reach each other, and at what bandwidth.

program: the program of the ranks; it is sent to the cluster as text and never imported.
job: the job of a task, with this program in place of its command.
results: parses the output of rank 0 and builds findings.
running: creates the job, waits for it, and deletes it in all cases.
"""
