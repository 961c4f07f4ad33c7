"""Histories of PyTorchJobs, made up by chance and played against the real training-operator.

`specs` and `walks` make them up; `mirror` sees what becomes of them and `pulse` when the operator is done;
`player` plays one, `plays` many at once, and `observing` tells what there is, as `tests/recorded` has it.
`manifests` makes up jobs that nobody plays: whether they are accepted is all.
"""
