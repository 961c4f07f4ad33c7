"""Implements `shell.cluster.Cluster` for Kubernetes. Importing the package loads no other module."""
