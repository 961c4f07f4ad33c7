"""The shim, a process that owns one pod: it runs the containers, writes their logs and reports their state.

A shim may outlive the server. As a machine may run hundreds of shims, a shim must use little memory: it
imports little of the standard library, and neither `dataclasses` nor `typing` nor `subprocess`.
"""
