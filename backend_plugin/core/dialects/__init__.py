"""The dialects: the kinds of Kubernetes objects that a training job can be written as, one folder each.

`base` defines the interface, and `table` lists them.
"""
