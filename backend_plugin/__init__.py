"""The platform's half: task template → job in the cluster → phase.

core: pure; `core.pipeline` is the page to read first.
cli: what people type.
"""
