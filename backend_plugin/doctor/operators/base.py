"""The interface of an operator: the facts that the doctor needs to check the jobs of one dialect."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend_plugin.core.values import Manifest
from backend_plugin.doctor.check import Check
from backend_plugin.doctor.facts import RolePods


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLimits:
    """The limits of a job that runs once, and whose pods stay until the job is deleted."""

    active_seconds: int
    """The time after which the job ends."""
    kept_seconds: int
    """The time after which the job is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobManifests:
    """A job and the objects that must exist before it."""

    job: Manifest
    prerequisites: Sequence[Manifest] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSupport:
    """The operator of a dialect, as the doctor checks it."""

    checks: Sequence[Check]
    """The checks of its API, its Deployment and its webhooks."""
    is_operator: Callable[[Manifest], bool]
    """True if a Deployment runs the operator."""
    build_role_pods: Callable[[Manifest, Sequence[Manifest]], Sequence[RolePods]]
    """Return the pods of each role of a job with its prerequisites, as the operator creates them."""
    build_invalid_job: Callable[[str], Manifest]
    """Return a job for a namespace that the webhook of the operator rejects."""
    build_trial: Callable[[JobManifests, Callable[[Manifest], Manifest], TrialLimits], JobManifests]
    """Return a job with changed pod templates and with these limits, which is never retried."""
    schemas: Sequence[str] = ()
    """The names of the CustomResourceDefinitions that the checks read, besides that of the jobs."""
    read_group_policy: Callable[[Manifest], Manifest]
    """Return the fields of a job from which the operator creates a pod group; empty if it has none."""
