"""The process that owns one pod: it runs the containers, writes their logs and reports their state.

A shim may outlive the server and there may be hundreds of them. It therefore uses little of the standard
library. It does not import `dataclasses`, `typing` or `subprocess`.

- main: the event loop, and the entry point.
- lifecycle: pure; decides what to start and when, and whether the pod is finished.
- container: one container run: its processes, streams and termination.
- supervisor: all containers of the pod.
- program: fork and exec.
- logfile: log files with timestamps and limited size.
- process_tree: finds, measures and kills the processes of a pod. portable_tree: the same without /proc.
- layout: the files in the directory of a pod, which the server also uses.
"""
