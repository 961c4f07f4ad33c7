"""Task templates as an installed package serializes them: ``python upstream_templates.py CASES ANSWERS``.

The script runs in either environment, so it imports neither pytest nor modules of this repository by name.
"""

import json
import sys
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

from flytekit import ImageSpec, PodTemplate, Resources, Secret, Workflow, task
from flytekit.configuration import FastSerializationSettings, Image, ImageConfig, SerializationSettings
from flytekit.extras.accelerators import T4
from flytekit.tools.translator import get_serializable
from google.protobuf.json_format import MessageToDict
from kubernetes.client import (
    ApiClient,
    V1Container,
    V1EmptyDirVolumeSource,
    V1PodSpec,
    V1ResourceRequirements,
    V1Toleration,
    V1Volume,
    V1VolumeMount,
)

import flytekitplugins.kfpytorch
from flytekitplugins.kfpytorch import (
    CleanPodPolicy,
    Elastic,
    Master,
    PyTorch,
    RestartPolicy,
    RunPolicy,
    Worker,
)

VOCABULARY = {
    named.__name__: named
    for named in (
        CleanPodPolicy,
        Elastic,
        ImageSpec,
        Master,
        PodTemplate,
        PyTorch,
        Resources,
        RestartPolicy,
        RunPolicy,
        Secret,
        V1Container,
        V1EmptyDirVolumeSource,
        V1PodSpec,
        V1ResourceRequirements,
        V1Toleration,
        V1Volume,
        V1VolumeMount,
        Worker,
    )
} | {"T4": T4}

IMAGES = ImageConfig(default_image=Image(name="default", fqn="registry/default", tag="v1"))
SETTINGS = {"project": "p", "domain": "d", "version": "v", "env": {"FOO": "bar"}, "image_config": IMAGES}
FAST = FastSerializationSettings(enabled=True, destination_dir="/code", distribution_location="s3://code")


def train(steps: int = 3) -> float:
    """Train for some steps."""
    return float(steps)


def read(expression: str) -> Any:
    return eval(expression, dict(VOCABULARY))


def define(case: dict[str, Any]) -> Any:
    arguments = {name: read(text) for name, text in case["arguments"].items()}
    defined = task(train, task_config=read(case["config"]), **arguments)
    globals()["defined"] = defined  # The loader arguments name the task by its module variable.
    return defined


def template(defined: Any, case: dict[str, Any]) -> dict[str, Any]:
    fast = {"fast_serialization_settings": FAST} if case["is_fast"] else {}
    entity = defined
    if case["override"]:
        entity = Workflow(name="w")
        entity.add_entity(defined, steps=3).with_overrides(task_config=read(case["override"]))
    models: Any = OrderedDict()
    get_serializable(models, SerializationSettings(**SETTINGS, **fast), entity)
    return MessageToDict(models[defined].to_flyte_idl())


def describe(case: dict[str, Any]) -> dict[str, Any]:
    try:
        defined = define(case)
    except ValueError:
        return {"refused": True}
    pod = defined.pod_template
    return {
        "template": template(defined, case),
        "custom": defined.get_custom(SerializationSettings(**SETTINGS)),
        "type": [defined.task_type, defined.task_type_version],
        "pod": pod and [repr(pod), ApiClient().sanitize_for_serialization(pod.pod_spec)],
        "nodes": [getattr(defined, name, None) for name in ("min_nodes", "max_nodes", "rdzv_backend")],
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = {
        "written by": flytekitplugins.kfpytorch.__file__,
        "answers": [describe(case) for case in cases],
    }
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")
