"""A row of the table of breaks: how to break the cluster, and the findings of the doctor in this process."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from builders import a_run, a_template
from rig.api import Manifest

from backend_plugin.core import settings
from backend_plugin.doctor import fact_collector, run_checks, task_planner
from backend_plugin.doctor.fact_collector import DoctorRequest
from backend_plugin.kube.options import KubernetesOptions
from broken_clusters import cluster_changes
from broken_clusters.cluster_changes import BreakCase


@dataclass(frozen=True, kw_only=True)
class Break:
    """Problems of one cluster, and the findings that the doctor reports for them."""

    finds: Mapping[str, str]  # A part of the expected remedy, by the id of the check.
    there: Callable[[str], Sequence[Manifest]] = lambda _: ()
    """Return the objects to create in a namespace, with their status if they have one."""
    platform: Mapping[str, Any] = field(default_factory=dict)  # Flyte's plugin settings.
    request: Mapping[str, Any] = field(default_factory=dict)  # Further arguments of `build_request`.
    around: Callable[[BreakCase], contextlib.AbstractContextManager[Mapping[str, Any] | None]] = lambda _: (
        contextlib.nullcontext()
    )
    """A context manager for further changes.

    It can yield more arguments for `build_request`, and a `kubeconfig` that replaces the default.
    """

    def __str__(self):
        return ",".join(self.finds)

    @contextlib.contextmanager
    def broken(self, on):
        """Break the cluster. Yield a kubeconfig for it and the doctor's input."""
        with contextlib.ExitStack() as undo:
            for manifest in self.there(on.namespace):
                undo.enter_context(cluster_changes.with_object(on.plane, manifest))
            fields = {**self.request, **(undo.enter_context(self.around(on)) or {})}
            kubeconfig = fields.pop("kubeconfig", None) or on.plane.kubeconfig()
            yield kubeconfig, build_request(on.namespace, platform=self.platform, **fields)


def build_request(namespace, custom=None, platform=None, **fields):
    """Return the doctor's input for a task, or without a task if neither `custom` nor `template` is given.

    `platform` has Flyte's plugin settings, and `fields` further fields of `DoctorRequest`. Of these,
    `template` has fields of the task template. `custom` is its field of this name.
    """
    of_task = fields.pop("template", {})
    is_any = custom is None and not of_task
    replicas = custom or {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 1}}
    return DoctorRequest(
        template=task_planner.build_default_task() if is_any else a_template(replicas, **of_task),
        run=a_run(namespace=namespace, service_account="default"),
        named=not is_any,
        settings=settings.read(platform or {}),
        **fields,
    )


def list_findings(kubeconfig, request):
    options = KubernetesOptions(kubeconfig=str(kubeconfig))
    return run_checks.list_findings(asyncio.run(fact_collector.collect_facts(options, request)))
