"""The options with which a server or a command connects to a Kubernetes cluster and watches it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """The credentials and the namespaces of a cluster, and the limits for API requests."""

    kubeconfig: str = ""
    """Kubeconfig files, as in ``KUBECONFIG``. Empty for the pod's service account, else kubectl's default."""
    context: str = ""
    """A context of the kubeconfig. Empty for the current context."""
    namespaces: tuple[str, ...] = ()
    """The watched namespaces. Empty for all namespaces, which requires a ClusterRole."""
    page: int = 500
    """The number of objects in one page of a list. Each page has a fixed cost for the API server."""
    silence: float = 90.0
    """Seconds without data after which a watch is restarted. The API server sends a bookmark each minute if
    there are no changes. A watch of a kind without bookmarks continues from its last version."""
    request_timeout: float = 6.0
    """The total time in seconds for one API request, with its retries. A CreateTask may take only 7 s."""
    refused_pause: float = 60.0
    """Seconds between two requests for a resource that is absent or forbidden."""
