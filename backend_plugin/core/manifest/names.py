"""What a job is called, and how anybody tells whose it is.

A name is a function of the attempt alone: asking twice for the same is asking once, whichever server or
release of ours asks. So nothing here may change; `tests/unit/core/manifest/test_names.py` holds examples.
"""

import hashlib
import re
from typing import Final

from backend_plugin.core.job import OwnerReference, Run
from backend_plugin.core.reading import section, text
from backend_plugin.core.values import Manifest

LONGEST_NAME: Final = 50
"""A pod and its service are named <job>-worker-<index>: 63 characters, as far as index 99999."""

PREFIX: Final = "kfpytorch.flyte.org/"
"""Of all labels and annotations that are ours."""
IDENTITY: Final = "kfpytorch.flyte.org/job"
"""The label of a job and of its pods; what is watched has it."""
OUTPUT_PREFIX: Final = "kfpytorch.flyte.org/output-prefix"
"""The annotation of a job: whose it is, in full."""

_MANAGED_BY: Final = {
    "app.kubernetes.io/managed-by": "flytekitplugins-kfpytorch",
    "app.kubernetes.io/part-of": "flyte",
}
# 48 bits: among a million jobs of one namespace any two are called the same once in 500 times, and only
# if they also share what stands before it; they would still differ in identity.
_HASH_CHARACTERS: Final = 12
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")


def job_name(run: Run) -> str:
    """``<execution>-<node>-<attempt>-<hash>``, DNS-1035; what is too long is cut before the attempt."""
    tail = f"-{run.attempt}-{_digest(run.output_prefix)[:_HASH_CHARACTERS]}"
    head = _NO_NAME.sub("-", f"{run.execution}-{run.node_id}".lower()).strip("-")
    if not head[:1].isalpha():
        head = f"f{head}"
    return head[: LONGEST_NAME - len(tail)].rstrip("-") + tail


def identity(run: Run) -> str:
    """The value of the label: equal for the same attempt only."""
    return _identity(run.output_prefix)


def is_for(job: Manifest, output_prefix: str) -> bool:
    """Whether it is the job of the attempt that writes there: its label says so, and nothing another."""
    said = text(section(job, "metadata", "annotations"), OUTPUT_PREFIX)
    label = text(section(job, "metadata", "labels"), IDENTITY)
    return bool(output_prefix) and label == _identity(output_prefix) and said in ("", output_prefix)


def identity_labels(output_prefix: str) -> dict[str, str]:
    """The labels of a job, and of what stands beside it, that make it ours."""
    return {**_MANAGED_BY, IDENTITY: _identity(output_prefix)}


def owner_references(owner: OwnerReference | None) -> list[Manifest]:
    """The `ownerReferences` of the job, as Flyte's own jobs have them; empty without an owner."""
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


def _identity(output_prefix: str) -> str:
    return _digest(output_prefix)[:40]


def _digest(output_prefix: str) -> str:
    return hashlib.sha256(output_prefix.rstrip("/").encode()).hexdigest()
