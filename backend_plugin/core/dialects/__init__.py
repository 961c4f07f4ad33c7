"""The dialects: the kinds of Kubernetes objects that a training job can be written as.

`base` defines the interface, each dialect is one folder, and `table` lists them. All facts about the API of a
job kind are in its folder; `backend_plugin.embedded.operators` emulates its operator.
"""
