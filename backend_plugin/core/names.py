"""The name, labels and owner references of a job.

A name depends only on the attempt, so that every server and release derives the same name, and a repeated
Create request creates no second job. So do not change this module: a changed name would be that of a new job.
`tests/unit/core/test_names.py` contains examples.
"""

import hashlib
import re
from functools import lru_cache
from typing import Final

from backend_plugin.core.job import Attempt, OwnerReference
from backend_plugin.core.reading import get_text
from backend_plugin.core.values import Manifest

LONGEST_NAME: Final = 50
"""The maximum length of the name of a job; a kind of job may allow less."""

TASK_TYPE: Final = "pytorch"
"""The type of the Flyte tasks that this project runs."""

PREFIX: Final = "kfpytorch.flyte.org/"
"""The prefix of all labels and annotations of this project."""
IDENTITY: Final = "kfpytorch.flyte.org/job"
"""The label of a job and its pods by which the server selects them in watches."""
OUTPUT_PREFIX: Final = "kfpytorch.flyte.org/output-prefix"
"""The annotation of a job with the output prefix of its attempt."""
NO_OUTPUTS: Final = "none:"
"""The first characters of the output prefix of a job that has no outputs."""
CLEAN_POD_POLICY: Final = "kfpytorch.flyte.org/clean-pod-policy"
"""The annotation with a clean pod policy that the server applies instead of the operator."""
PLACE_OF: Final = "kfpytorch.flyte.org/placeholder-for"
"""The label of a placeholder pod, with which a scheduler reserves capacity; the value is the job's name."""
PLACE: Final = "kfpytorch.flyte.org/placeholder-role"
"""The label of a placeholder pod with the replica role in lower case."""
NAME: Final = r".+-\d+-[0-9a-f]{12}"
"""A regular expression that matches the names of the jobs that this project creates."""

_MANAGED_BY: Final = {
    "app.kubernetes.io/managed-by": "flytekitplugins-kfpytorch",
    "app.kubernetes.io/part-of": "flyte",
}
# 48 bits: two of a million jobs in a namespace collide with a probability of 1 in 500, and only if the rest
# of the name is equal. Their identity labels would still differ.
_HASH_CHARACTERS: Final = 12
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")


def job_name(run: Attempt, longest: int = LONGEST_NAME) -> str:
    """Return ``<execution>-<node>-<attempt>-<hash>``, a DNS-1035 label of at most `longest` characters."""
    tail = f"-{run.attempt}-{_hash_output_prefix(run.output_prefix)[:_HASH_CHARACTERS]}"
    head = _NO_NAME.sub("-", f"{run.execution}-{run.node_id}".lower()).strip("-")
    if not head[:1].isalpha():
        head = f"f{head}"
    return head[: longest - len(tail)].rstrip("-") + tail


def compute_identity(output_prefix: str) -> str:
    """Return the value of the identity label, which is unique for an attempt."""
    return _hash_output_prefix(output_prefix)[:40]


def has_output_prefix(job: Manifest, output_prefix: str) -> bool:
    """True if the job belongs to the attempt with the output prefix, by its label and annotation."""
    annotation = get_text(job, "metadata", "annotations", OUTPUT_PREFIX)
    label = get_text(job, "metadata", "labels", IDENTITY)
    return (
        bool(output_prefix) and label == compute_identity(output_prefix) and annotation in ("", output_prefix)
    )


def build_identity_labels(output_prefix: str) -> dict[str, str]:
    """Return the labels of a job and of the objects that this project creates for it."""
    return {**_MANAGED_BY, IDENTITY: compute_identity(output_prefix)}


def build_owner_references(owner: OwnerReference | None) -> list[Manifest]:
    """Return the `ownerReferences` of the job, as Flyte's plugins set them; empty without an owner."""
    if owner is None:
        return []
    return [
        {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


# The objects of a job contain the same hash.
@lru_cache(maxsize=64)
def _hash_output_prefix(output_prefix: str) -> str:
    return hashlib.sha256(output_prefix.rstrip("/").encode()).hexdigest()
