"""What a server is told of its Kubernetes cluster."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """Where the cluster is, and which part of it is ours to see."""

    kubeconfig: str = ""
    """One or several files, as in ``KUBECONFIG``; empty: the pod's own account, or else kubectl's default."""
    context: str = ""
    """Of the kubeconfig; empty: its current one."""
    namespaces: tuple[str, ...] = ()
    """Only these are followed; empty: all of them, which wants a ClusterRole."""
    page: int = 500
    """Objects a page of a list; each page costs the API server something apart from what is in it."""
    silence: float = 90.0
    """Seconds without a byte after which a watch is taken for dead. The API server sends a bookmark a
    minute where it has nothing else to say; a kind without bookmarks is asked anew, from where it was."""
    patience: float = 6.0
    """Seconds in all for one question, with its repetitions; CreateTask has seven."""
    refused_pause: float = 60.0
    """Seconds until what is not there, or not permitted, is asked for again."""
