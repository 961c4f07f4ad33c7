"""The shim, a process that owns one pod: it runs the containers, writes their logs and reports their state.

A shim may outlive the server and there may be hundreds of them. It therefore uses little of the standard
library. It does not import `dataclasses`, `typing` or `subprocess`.
"""
