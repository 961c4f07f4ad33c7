"""Reads training runtimes, and builds a job that lists the Python packages of a runtime."""

from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.core import names, runtimes, task_annotation
from backend_plugin.core.dialects.trainjob import options, resource
from backend_plugin.core.dialects.trainjob.options import JobOptions
from backend_plugin.core.errors import Problem
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.runtimes import PackageJob, Runtime
from backend_plugin.core.values import JsonValue, Manifest

_KEPT_SECONDS: Final = 60
_DEVICES: Final = {
    "nvidia.com/gpu": "gpu",
    "amd.com/gpu": "gpu",
    "google.com/tpu": "tpu",
    "huawei.com/Ascend910": "npu",
}
_MIG: Final = "nvidia.com/mig-"
_CPU: Final = "cpu"


def read_runtime(manifest: Manifest) -> Runtime:
    """Read a TrainingRuntime or a ClusterTrainingRuntime."""
    metadata, spec = get_mapping(manifest, "metadata"), get_mapping(manifest, "spec")
    labels, policy = get_text_map(metadata, "labels"), get_mapping(spec, "mlPolicy")
    replicated = {
        get_text_map(each, "template", "metadata", "labels").get(resource.ANCESTOR, ""): each
        for each in get_mappings(spec, "template", "spec", "replicatedJobs")
    }
    node = replicated.pop("trainer", {})
    replicated.pop("", None)
    trainer = resource.find_trainer(get_mapping(node, "template", "spec", "template", "spec"))
    device, count = _read_device(get_mapping(trainer, "resources", "limits"))
    name, nodes = get_text(metadata, "name"), get_int(policy, "numNodes")
    return Runtime(
        name=name,
        kind=get_text(manifest, "kind"),
        namespace=get_text(metadata, "namespace"),
        framework=labels.get(resource.FRAMEWORK, ""),
        nodes=1 if nodes is None else nodes,
        processes=_read_processes(policy),
        device=device,
        device_count=count,
        image=get_text(trainer, "image"),
        job=name if names.IDENTITY in labels else "",
        role=get_text(node, "name") if trainer else "",
        initializers=tuple(get_text(each, "name") for each in replicated.values()),
    )


def _read_processes(policy: Manifest) -> str:
    found = [get_mapping(policy, framework).get("numProcPerNode") for framework in policy]
    return next((str(each) for each in found if isinstance(each, int | str)), "")


def _read_device(limits: Manifest) -> tuple[str, str]:
    for name, amount in limits.items():
        if name in _DEVICES or name.startswith(_MIG):
            return _DEVICES.get(name) or name.rpartition("/")[2], str(amount)
    return (_CPU, str(limits[_CPU])) if _CPU in limits else ("", "")


def build_package_job(runtime: Runtime, wanted: PackageJob) -> Manifest:
    """Return a job with one node that prints the packages in a runtime's image, on the runtime's devices."""
    prefix = f"{names.NO_OUTPUTS}{wanted.namespace}/{wanted.name}"
    labels = names.build_identity_labels(prefix)
    trainer: dict[str, JsonValue] = {
        "numNodes": 1,
        "command": [*runtimes.COMMAND],
        "args": [runtimes.PROGRAM],
    }
    if runtime.device in ("", _CPU):
        trainer["resourcesPerNode"] = {"requests": {_CPU: "1"}, "limits": {_CPU: "1"}}
    patched: Manifest = {"metadata": {"labels": labels}}
    jobs: list[JsonValue] = [{"name": runtime.role, "template": {"spec": {"template": patched}}}]
    return {
        **resource.RESOURCE.type_meta,
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": labels,
            "annotations": {
                names.OUTPUT_PREFIX: prefix,
                task_annotation.ANNOTATION: task_annotation.encode_deadline(wanted.seconds),
                options.ANNOTATION: options.encode(JobOptions(named_runtime=True, ttl_seconds=_KEPT_SECONDS)),
            },
        },
        "spec": {
            "runtimeRef": resource.build_runtime_reference(runtime.kind, runtime.name),
            "trainer": trainer,
            "runtimePatches": [resource.build_runtime_patch(jobs)],
        },
    }


def check_reference(job: Manifest, found: Sequence[Runtime]) -> Iterator[Problem]:
    """Yield a problem if a job's runtime is not in `found`, or lacks a replicated job that the task needs.

    Yield no problem if `found` has no runtime that the job could name, because the server may be unable to
    list runtimes.
    """
    reference = get_mapping(job, "spec", "runtimeRef")
    name, kind = get_text(reference, "name"), get_text(reference, "kind")
    namespaces = ("", get_text(job, "metadata", "namespace"))
    # A runtime with a job was created for this job alone.
    known = [each for each in found if each.kind == kind and not each.job and each.namespace in namespaces]
    missing = {each.name: _find_missing_job(job, each) for each in known}
    usable = sorted(each for each, part in missing.items() if not part)
    if name in usable or not known:
        return
    message = f"has no job {missing[name]}" if name in missing else f"is not a {kind} of the cluster"
    remedy = f"write one of {', '.join(usable)}" if usable else f"leave it out: no {kind} can run the task"
    yield build_problem("custom.kfpytorch.trainJob.runtime", name, message, remedy)


def _find_missing_job(job: Manifest, runtime: Runtime) -> str:
    """Return the name and purpose of the replicated job that a runtime lacks for a task; empty if none."""
    if runtime.role != resource.ROLE:
        return f"{resource.ROLE} with a container {resource.CONTAINER}, in which a task runs"
    needed = (resource.INITIALIZERS[kind] for kind in get_mapping(job, "spec", "initializer"))
    found = [each for each in needed if each not in runtime.initializers]
    return f"{' or '.join(found)}, which loads the files of the task" if found else ""
