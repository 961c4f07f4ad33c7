"""Serialization of the same generated configs by upstream's package and by ours, in two environments.

The configs have every form that upstream accepts. Cases in which ours differs intentionally (docs/decisions)
are left out: invalid values, more processes than GPUs, shared memory that upstream mounts in the wrong
container, and placeholder images.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dice import Dice

pytestmark = [pytest.mark.conformance, pytest.mark.torch, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("upstream_templates.py")
ROOT = SCRIPT.parents[2]
CASES = 600
SEED = 20241121  # An arbitrary seed, equal for both environments and all runs.

RESOURCES = [
    {},
    {"requests": "Resources()"},
    {"requests": "Resources(cpu='500m')", "limits": "Resources()"},
    {"requests": "Resources(cpu=2, mem='2Gi', gpu='1')"},
    {"limits": "Resources(gpu='1', ephemeral_storage='10Gi')"},
    {"requests": "Resources(cpu=0.5, mem=1024)", "limits": "Resources(cpu='4', mem='8Gi', gpu=1)"},
    {"requests": "Resources(cpu='2', mem='2Gi')", "limits": "Resources(cpu='2', mem='2Gi')"},
]
IMAGES = ["''", "'trainer:v2'", "'registry.example.com/team/trainer@sha256:0123'"]
RESTARTS = ["RestartPolicy.ALWAYS", "RestartPolicy.FAILURE", "RestartPolicy.NEVER"]
NUMBERS = ["0", "1", "600", "2147483647"]
ROLE = {"image": IMAGES, "restart_policy": RESTARTS}
REPLICAS = ["0", "1", "2", "5", "1000"]
RUN_POLICY = {
    "clean_pod_policy": ["CleanPodPolicy.NONE", "CleanPodPolicy.ALL", "CleanPodPolicy.RUNNING"],
    "ttl_seconds_after_finished": NUMBERS,
    "active_deadline_seconds": NUMBERS,
    "backoff_limit": NUMBERS,
}
ELASTIC = {
    "nnodes": ["1", "2", "7", "'1'", "'3'", "'1:1'", "'1:4'", "'2:4'", "' 2 : 3 '"],
    "nproc_per_node": ["1", "2", "8"],
    "start_method": ["'spawn'", "'fork'"],
    "monitor_interval": ["1", "5", "0.5"],
    "max_restarts": ["0", "3"],
    "rdzv_configs": ["{}", "{'timeout': 60}", "{'join_timeout': 10, 'read_timeout': '90', 'is_host': True}"],
    "increase_shared_mem": ["True", "False"],
}
PODS = [
    "PodTemplate()",
    "PodTemplate(labels={'team': 'vision'}, annotations={'note': 'x'})",
    "PodTemplate(pod_spec=V1PodSpec(containers=[]))",
    "PodTemplate(pod_spec=V1PodSpec(containers=[V1Container(name='primary')], node_selector={'a': 'b'}))",
    "PodTemplate(pod_spec=V1PodSpec(containers=[V1Container(name='primary', image='own:v3', "
    "resources=V1ResourceRequirements(limits={'cpu': '3'}))], tolerations=[V1Toleration(key='gpu')]))",
    "PodTemplate(pod_spec=V1PodSpec(containers=[V1Container(name='trainer', volume_mounts=["
    "V1VolumeMount(name='data', mount_path='/data')])], volumes=[V1Volume(name='data', "
    "empty_dir=V1EmptyDirVolumeSource())]), primary_container_name='trainer')",
]
REFUSED_WITH_SHARED_MEMORY = [
    "PodTemplate(pod_spec=V1PodSpec(containers=[V1Container(name='primary'), "
    "V1Container(name='b', image='b:1')]))",
    "PodTemplate(pod_spec=V1PodSpec(containers=[V1Container(name='primary', volume_mounts=["
    "V1VolumeMount(name='shm', mount_path='/dev/shm')])], volumes=[V1Volume(name='shm')]))",
]
ARGUMENTS = {
    "requests": ["Resources(cpu='1', mem='1Gi')"],
    "limits": ["Resources(cpu='2', gpu='8')"],  # The largest nproc_per_node above.
    "shared_memory": ["True", "'2Gi'", "False"],
    "pod_template": PODS,
    "pod_template_name": ["'gang'"],
    "container_image": ["'task:v9'"],
    "retries": ["2"],
    "timeout": ["60"],
    "interruptible": ["True"],
    "enable_deck": ["True"],
    "environment": ["{'LEVEL': 'debug'}"],
    "accelerator": ["T4"],
    "cache": ["True"],
    "cache_version": ["'1'"],
    "secret_requests": ["[Secret(group='g', key='k')]"],
    "labels": ["{'a': 'b'}"],
}


class Author(Dice):
    """A generator of configs with seeded random choices."""

    def call(self, name, arguments, order):
        """Return a call with keyword arguments, or with the leading arguments by position."""
        by_position = 0
        while by_position < len(order) and order[by_position] in arguments and self.yes(0.5):
            by_position += 1
        texts = [arguments[field] for field in order[:by_position]]
        texts += [f"{field}={text}" for field, text in arguments.items() if field not in order[:by_position]]
        return f"{name}({', '.join(texts)})"

    def role(self, name, arguments):
        order = ["image", "requests", "limits", *(["replicas"] if name == "Worker" else []), "restart_policy"]
        arguments = {**self.some(ROLE, 0.4), **self.choice(RESOURCES), **arguments}
        return self.call(name, arguments, order)

    def run_policy(self):
        return self.call("RunPolicy", self.some(RUN_POLICY, 0.5), list(RUN_POLICY))

    def pytorch(self, *, with_shared_memory=None):
        arguments = {}
        if self.yes(0.7):
            arguments["master"] = self.role("Master", {})
        legacy = self.choice(["", "", "", "0", "4"])
        replicas = {"": REPLICAS, "0": [*REPLICAS, ""], "4": ["0", ""]}[legacy]
        chosen = self.choice(replicas)
        arguments["worker"] = self.role("Worker", {"replicas": chosen} if chosen else {})
        if self.yes(0.5):
            arguments["run_policy"] = self.choice([self.run_policy(), "None", "{}"])
        if legacy:
            arguments["num_workers"] = legacy
        if with_shared_memory is None and self.yes(0.3):
            arguments["increase_shared_mem"] = self.choice(["True", "False"])
        return self.call(
            "PyTorch", arguments, ["master", "worker", "run_policy", "num_workers", "increase_shared_mem"]
        )

    def elastic(self):
        arguments = self.some(ELASTIC, 0.5)
        if self.yes(0.5):
            arguments["run_policy"] = self.run_policy()
        return self.call("Elastic", arguments, [*ELASTIC, "run_policy"])

    def case(self):
        is_elastic = self.yes(0.5)
        arguments = self.some(ARGUMENTS, 0.2)
        if arguments.pop("cache_version", None) and "cache" in arguments:
            arguments["cache_version"] = "'1'"
        else:
            arguments.pop("cache", None)
        override = not is_elastic and self.yes(0.1)
        return {
            "config": self.elastic() if is_elastic else self.pytorch(with_shared_memory=override or None),
            "arguments": arguments,
            "override": self.pytorch(with_shared_memory=True) if override else "",
            "is_fast": self.yes(0.3),
        }


def accepted(count):
    """Return cases that upstream serializes."""
    author = Author(SEED)
    return [author.case() for _ in range(count)]


def refused():
    """Return cases that upstream rejects when the task is defined."""
    configs = ["PyTorch()", "PyTorch(master=Master())", "PyTorch(num_workers=2, worker=Worker(replicas=2))"]
    cases = [(config, {}) for config in configs]
    for config in ("PyTorch(num_workers=2)", "Elastic(nnodes=2)", "Elastic()"):
        cases += [(config, {"pod_template": pod}) for pod in REFUSED_WITH_SHARED_MEMORY]
    return [
        {"config": config, "arguments": arguments, "override": "", "is_fast": False}
        for config, arguments in cases
    ]


def answers(python, package, cases, folder):
    folder.mkdir()
    (folder / "cases.json").write_text(json.dumps(cases))
    # The author's file has the same name in both environments, because the template contains the name.
    (folder / "author.py").write_bytes(SCRIPT.read_bytes())
    command = [python, "author.py", "cases.json", "answers.json"]
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(package)}, check=True)
    written = json.loads((folder / "answers.json").read_text())
    assert Path(written["written by"]).is_relative_to(package)
    return written["answers"]


@pytest.mark.parametrize("cases", [accepted(CASES), refused()], ids=["accepted", "refused"])
def test_task_is_serialized_identically_to_upstream(cases, upstream, tmp_path):
    (installed,) = upstream.glob("lib/python*/site-packages")
    theirs = answers(upstream / "bin" / "python", installed, cases, tmp_path / "upstream")
    ours = answers(Path(sys.executable), ROOT, cases, tmp_path / "ours")
    assert [found for found in zip(cases, theirs, ours, strict=True) if found[1] != found[2]] == []
    assert {answer == {"refused": True} for answer in theirs} == {cases == refused()}
