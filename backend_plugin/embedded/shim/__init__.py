"""The process that every pod has: it owns the containers, keeps their logs and tells their state.

It outlives the server if it is told to, so it needs nothing but the standard library, and little of that:
there may be hundreds of them. Nothing here imports `dataclasses`, `typing` or `subprocess` for that reason.

main: the loop; read it first.
lifecycle: PURE; what is to be started, when, and whether a pod is over.
container: one run of a container: its processes, streams and end.
supervisor: all containers of the pod, from the first start to the last end.
program: from a fork to somebody else's program.
logfile: output → time-stamped lines, within bounds.
process_tree: who descends from whom, what they hold, killing all of them; portable_tree without /proc.
layout: what a pod's directory holds; the server reads the same.
"""
