"""A Kubernetes cluster emulated in one process; pods run as process groups of this machine."""
