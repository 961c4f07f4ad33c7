"""Random histories of PyTorchJobs, played against the real training operator.

`recorded_format` returns the observed state in the format of `tests/recorded`. `manifests` generates jobs to
test only their API admission.
"""
