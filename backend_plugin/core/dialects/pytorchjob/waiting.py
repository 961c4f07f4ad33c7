"""The init container in which a worker waits for the master."""

from collections.abc import Iterable, Sequence
from typing import Final

from backend_plugin.core.job import ReplicaRole
from backend_plugin.core.values import Manifest

NAME: Final = "init-pytorch"
# The default of the operator. A platform can configure another init container, which we cannot see.
_CONTAINER: Final[Manifest] = {
    "name": NAME,
    "resources": {"requests": {"cpu": "50m", "memory": "10Mi"}, "limits": {"cpu": "100m", "memory": "20Mi"}},
}


def list_added_containers(role: ReplicaRole, roles: Iterable[ReplicaRole]) -> Sequence[Manifest]:
    """Return the init container of a worker beside a master; none for other pods."""
    return (_CONTAINER,) if role is ReplicaRole.WORKER and ReplicaRole.MASTER in roles else ()
