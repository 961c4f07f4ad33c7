"""The Kubeflow runtimes of an embedded cluster, an implementation of `shell.cluster.Inventory`."""

from collections.abc import Sequence
from dataclasses import dataclass

from backend_plugin.core.dialects import table
from backend_plugin.core.observed import Job
from backend_plugin.core.runtimes import Runtime
from backend_plugin.embedded.objects import PREREQUISITES
from backend_plugin.embedded.store import Store


@dataclass(frozen=True, slots=True)
class EmbeddedInventory:
    """The objects of an embedded cluster that the server lists but does not watch."""

    store: Store

    async def list_foreign_jobs(self, name: str = "") -> Sequence[Job]:  # noqa: ARG002
        """Return no jobs, because the cluster has no other clients; see `Inventory.list_foreign_jobs`."""
        return ()

    async def list_runtimes(self) -> Sequence[Runtime]:
        """Return the Kubeflow runtimes in the cluster; see `Inventory.list_runtimes`."""
        return [
            support.read(each)
            for support in (dialect.runtimes for dialect in table.DIALECTS.values())
            if support is not None
            for kind in support.kinds
            if kind.kind in PREREQUISITES
            for each in self.store.list_objects(kind.kind)
        ]
