"""Builders of attempts, task templates and jobs, with defaults that a test can override."""

import pytest
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict

from backend_plugin.core.decoding import custom
from backend_plugin.core.errors import InvalidTask, collect_problems
from backend_plugin.core.job import Attempt

CONTAINER = {"image": "image:1", "args": ["pyflyte-execute"]}


def a_run(**fields):
    prefix = "s3://bucket/metadata/propeller/project-development-f1/n0/data/0"
    node = {"execution": "f1", "node_id": "n0", "attempt": 0, "output_prefix": prefix}
    place = {"project": "project", "domain": "development", "namespace": "project-development"}
    task = {"task_project": "project", "task_domain": "development", "task_name": "module.train"}
    return Attempt(**{**node, **place, **task, "task_version": "v1", **fields})


def a_template(custom_fields, **fields):
    """Build a task template of version 1 with a container, from protobuf JSON."""
    defaults = {"type": "pytorch", "taskTypeVersion": 1, "container": CONTAINER, "custom": custom_fields}
    return ParseDict({**defaults, **fields}, TaskTemplate())


def decoded(custom_fields, **fields):
    with collect_problems() as problems:
        return custom.decode(a_template(custom_fields, **fields), a_run(), problems)


def reject(decide, *arguments, **fields):
    with pytest.raises(InvalidTask) as caught:
        decide(*arguments, **fields)
    return caught.value.problems
