"""The dialects: the kinds of Kubernetes objects, such as PyTorchJob, that can represent a training job.

Each dialect has its own folder. `base` defines the interface of a dialect, and `table` lists all dialects.
"""
