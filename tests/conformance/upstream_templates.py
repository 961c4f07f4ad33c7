"""Task templates as an installed package serializes them: ``python upstream_templates.py CASES ANSWERS``.

The script runs in either environment, so it imports neither pytest nor modules of this repository by name.
"""

import json
import sys
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import flytekit
from flytekit import Workflow, task
from flytekit.configuration import FastSerializationSettings, Image, ImageConfig, SerializationSettings
from flytekit.extras.accelerators import T4
from flytekit.tools.translator import get_serializable
from google.protobuf.json_format import MessageToDict
from kubernetes import client

import flytekitplugins.kfpytorch

MODULES = (flytekitplugins.kfpytorch, flytekit, client)


class Vocabulary(dict[str, Any]):
    """The names in the expressions of cases. `client` loads its classes when they are read."""

    def __missing__(self, name: str) -> Any:
        return next(getattr(module, name) for module in MODULES if hasattr(module, name))


IMAGES = ImageConfig(default_image=Image(name="default", fqn="registry/default", tag="v1"))
SETTINGS = {"project": "p", "domain": "d", "version": "v", "env": {"FOO": "bar"}, "image_config": IMAGES}
FAST = FastSerializationSettings(enabled=True, destination_dir="/code", distribution_location="s3://code")


def train(steps: int = 3) -> float:
    """Train for some steps."""
    return float(steps)


def read(expression: str) -> Any:
    return eval(expression, {}, Vocabulary(T4=T4))


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
        "pod": pod and [repr(pod), client.ApiClient().sanitize_for_serialization(pod.pod_spec)],
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
