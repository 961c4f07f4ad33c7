"""A Kubernetes cluster emulated in one process; containers run as ordinary processes of this machine."""
