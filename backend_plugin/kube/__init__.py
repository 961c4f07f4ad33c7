"""A Kubernetes cluster behind `shell.cluster.Cluster`. Importing the package loads no other module."""
