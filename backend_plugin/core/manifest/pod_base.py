"""Finds the PodTemplate of the cluster for a task, and merges the pod of the task onto it."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from backend_plugin.core.errors import Problem
from backend_plugin.core.manifest import pod_resources
from backend_plugin.core.manifest.pod_draft import PodRequest
from backend_plugin.core.manifest.pod_resources import NO_CLAIM, ResourceRequirements
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_mapping
from backend_plugin.core.schema_check import convert_value, iter_unknown_fields, normalize_json
from backend_plugin.core.settings import Settings
from backend_plugin.core.values import Fields, Manifest

_DEFAULT_SCHEDULER: Final = "default-scheduler"
_DEFAULT: Final = "default-pod-template-name"
# The top-level fields of a PodTemplate; the fields of its metadata are not checked.
_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "template"})

# The names of two pattern containers by spec key: for all containers, and for the primary container. The
# patterns themselves never run.
_PATTERNS: Final = {"containers": ("default", "primary"), "initContainers": ("default-init", "primary-init")}
# In these maps an empty string or 0 is a value; in other fields it means absent.
_MAPS: Final = frozenset({"nodeSelector", "limits", "requests", "matchLabels", "labels", "annotations"})


def find_template(request: PodRequest) -> tuple[Fields, list[Problem], list[Problem]]:
    """Return the field ``template`` of the task's PodTemplate, its problems, and warnings about it.

    The first value is empty if there is no PodTemplate or it has problems. It is a problem if the PodTemplate
    that the task names does not exist. There is a warning for each unknown field, and if the task names no
    PodTemplate and the platform's default one does not exist.
    """
    found = _find_manifest(request)
    if found is None:
        if name := request.template.metadata.pod_template_name:
            return {}, [_missing_template_problem("metadata.podTemplateName", name, request)], []
        default = request.settings.default_pod_template_name
        return {}, [], [_missing_template_problem(_DEFAULT, default, request)] if default else []
    path, manifest = found
    plain = normalize_json(manifest)
    template, problems = convert_value(plain, "PodTemplate", path)
    if problems:
        return {}, problems, []
    if not template.get("template", {}).get("spec", {}).get("containers"):
        message = "is empty, and the API server rejects a PodTemplate without containers"
        remedy = "add a container named default with any image; it is only a template and never runs"
        return {}, [build_problem(f"{path}.template.spec.containers", [], message, remedy)], []
    return _without_default_scheduler(template["template"]), [], [*_check_fields(plain, path)]


def _check_fields(manifest: Fields, path: str) -> Iterator[Problem]:
    unknown = iter_unknown_fields({"template": manifest["template"]}, "PodTemplate")
    for field in sorted([*(manifest.keys() - _FIELDS), *unknown]):
        yield Problem(
            field=f"{path}.{field}",
            value="",
            message="is not a field of a PodTemplate and has no effect",
            remedy="correct its name, or leave it out",
        )


def _find_manifest(request: PodRequest) -> tuple[str, Manifest] | None:
    settings = request.settings
    template_name = request.template.metadata.pod_template_name or settings.default_pod_template_name
    places = (request.run.namespace, settings.kfpytorch.pod_template_namespace)
    for place in places if template_name else ():
        for manifest in request.pod_templates:
            metadata = get_mapping(manifest, "metadata")
            if (metadata.get("namespace"), metadata.get("name")) == (place, template_name):
                return f"podTemplates.{place}.{template_name}", manifest
    return None


def _without_default_scheduler(template: Fields) -> Fields:
    """Return the template without the scheduler name that the API server adds by default."""
    spec = template.get("spec", {})
    if spec.get("schedulerName") != _DEFAULT_SCHEDULER:
        return template
    return {**template, "spec": _without_keys(spec, ("schedulerName",))}


def _missing_template_problem(field: str, name: str, request: PodRequest) -> Problem:
    namespace, elsewhere = request.run.namespace, request.settings.kfpytorch.pod_template_namespace
    message = f"names a PodTemplate that exists neither in {namespace} nor in {elsewhere}"
    return build_problem(field, name, message, f"create it in {namespace}, or name another")


def find_unused_containers(path: str, template: Fields, spec: Fields) -> Iterator[Problem]:
    """Yield a problem for each container that a role's pod template would add to the pod of the task."""
    for kind, patterns in _PATTERNS.items():
        own = {each.get("name") for each in spec.get(kind, ())}
        for each in template.get("spec", {}).get(kind, ()):
            if (name := each.get("name")) not in (*patterns, *own):
                message = "is not a container of the task, and a template of a role adds none"
                remedy = "add the container to the pod_template of the task, which applies to all roles"
                yield build_problem(f"{path}.spec.{kind}", name, message, remedy)


def get_template_resources(
    base: Fields, kind: str, name: str, *, settings: Settings, trains: bool = True
) -> ResourceRequirements:
    """Return the resources that a PodTemplate specifies for the container `name` in the list `kind`.

    The resources are those of the first container that the PodTemplate has among `name`, ``primary`` (only if
    `trains` is true) and ``default``. For init containers, ``primary-init`` and ``default-init`` replace the
    last two names. Callers set `trains` for the container that trains and for all init containers.
    """
    default, primary = _PATTERNS[kind]
    for pattern in (name, primary, default) if trains else (name, default):
        for each in base.get("spec", {}).get(kind, ()):
            if pattern and each.get("name") == pattern:
                return pod_resources.read_container_resources(each, settings)
    return NO_CLAIM


def get_inherited_resources(base: Fields, name: str, settings: Settings) -> ResourceRequirements:
    """Return the resources that FlytePropeller copies from the template's container ``primary`` to `name`.

    FlytePropeller copies no resources if the template has a container `name`.
    """
    containers = {each.get("name"): each for each in base.get("spec", {}).get("containers", ())}
    if name in containers:
        return NO_CLAIM
    return pod_resources.read_container_resources(containers.get("primary", {}), settings)


def stack_templates(above: Fields, below: Fields) -> Fields:
    """Return a pod template with only the containers of `above`, followed by those of `below`.

    Callers use the result only to find the resources of a container.
    """
    specs = [each.get("spec", {}) for each in (above, below)]
    return {"spec": {kind: [item for spec in specs for item in spec.get(kind, ())] for kind in _PATTERNS}}


def merge_template(base: Fields, spec: Fields, primary: str) -> Fields:
    """Return the pod spec `spec` merged onto the pod template `base`; values of `spec` take precedence.

    Lists are concatenated.
    """
    below = base.get("spec")
    if below is None:
        return spec
    merged = merge_objects(_without_keys(below, _PATTERNS), _without_keys(spec, _PATTERNS))
    for kind, patterns in _PATTERNS.items():
        if spec.get(kind):
            layers = below.get(kind, ())
            merged[kind] = [
                _merge_container(layers, each, patterns, trains=each.get("name", "") == primary)
                for each in spec[kind]
            ]
    return merged


def _merge_container(
    below: Iterable[Fields], own: Fields, patterns: tuple[str, str], *, trains: bool
) -> Fields:
    """Return the container `own` merged onto those containers of a pod template (`below`) that apply to it.

    `patterns` are two names, such as ``default`` and ``primary``. The container with the first name applies
    to every container. The one with the second name then applies to the container that trains. The one with
    the name of `own` then applies to any other container.
    """
    default, primary = patterns
    by_name = {each.get("name"): each for each in below}
    pattern = primary if trains else own["name"]
    layers = [by_name.get(default), by_name.get(pattern) if pattern != default else None]
    merged: Fields = {}
    for layer in (*layers, own):
        merged = merge_objects(merged, layer) if layer else merged
    return {**merged, "name": own["name"]}


def merge_objects(below: Fields, above: Fields, *, is_map: bool = False) -> dict[str, Any]:
    """Return `above` merged onto `below`: objects recursively, lists concatenated, other values from `above`.

    An empty value of `above`, such as 0, means that the field is absent, and the value of `below` remains. If
    `is_map` is true, the objects are maps such as labels, and an empty value replaces that of `below`.
    """
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(value, dict) and isinstance(under, dict):
            merged[key] = merge_objects(under, value, is_map=key in _MAPS)
        elif isinstance(value, list) and isinstance(under, list):
            merged[key] = [*under, *value]
        elif value or under is None or is_map:
            merged[key] = value
    return merged


def _without_keys(spec: Fields, keys: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key not in keys}
