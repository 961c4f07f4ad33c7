"""Runs the doctor in this process against a test cluster."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from builders import a_run, a_template

from backend_plugin.core import settings
from backend_plugin.doctor import fact_collector, run_checks, sample_task
from backend_plugin.doctor.check import Finding
from backend_plugin.doctor.fact_collector import DoctorRequest
from backend_plugin.kube.options import KubernetesOptions


def build_request(
    namespace: str,
    custom: Mapping[str, Any] | None = None,
    platform: Mapping[str, Any] | None = None,
    **fields: Any,
) -> DoctorRequest:
    """Return the doctor's input for a task, or without a task if neither `custom` nor `template` is given.

    `platform` has Flyte's plugin settings, and `fields` further fields of `DoctorRequest`. Of these,
    `template` has fields of the task template. `custom` is its field of this name.
    """
    of_task = fields.pop("template", {})
    is_any = custom is None and not of_task
    replicas = custom or {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 1}}
    return DoctorRequest(
        template=sample_task.build_template() if is_any else a_template(replicas, **of_task),
        run=a_run(namespace=namespace, service_account="default"),
        named=not is_any,
        settings=settings.read(platform or {}),
        **fields,
    )


def findings(kubeconfig: Path, request: DoctorRequest) -> Sequence[Finding]:
    """Run the doctor and return its findings."""
    options = KubernetesOptions(kubeconfig=str(kubeconfig))
    return run_checks.list_findings(asyncio.run(fact_collector.collect_facts(options, request)))
