"""The platform's half: task template → job in the cluster → phase.

core: pure; `core.pipeline` is the page to read first.
execution: Flyte's word for who asks, in ours.
cli: what people type.
"""
