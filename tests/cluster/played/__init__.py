"""Random histories of PyTorchJobs, played against the real training operator.

`specs` and `walks` generate histories. `mirror` watches the cluster, and `pulse` detects that the operator
has handled all events. `player` plays one history, and `plays` many at the same time. `observing` returns the
observed state in the format of `tests/recorded`. `manifests` generates jobs to test only their API admission.
"""
