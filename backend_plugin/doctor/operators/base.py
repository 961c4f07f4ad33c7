"""The interface of an operator: the checks and functions that the doctor needs for one kind of job."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend_plugin.core.values import Manifest
from backend_plugin.doctor.check import Check
from backend_plugin.doctor.facts import RolePods


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLimits:
    """The time limits of a trial job, which runs once and keeps its pods until it is deleted."""

    active_seconds: int
    """The maximum seconds that the job runs."""
    kept_seconds: int
    """Seconds from the end of the job until it is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobManifests:
    """A job and the objects that must exist before it."""

    job: Manifest
    prerequisites: Sequence[Manifest] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSupport:
    """The checks and functions of the doctor for the operator of one dialect (kind of job)."""

    checks: Sequence[Check]
    """The checks of the operator's API, Deployment and webhooks."""
    is_operator: Callable[[Manifest], bool]
    """True if a Deployment runs the operator."""
    build_role_pods: Callable[[Manifest, Sequence[Manifest]], Sequence[RolePods]]
    """Return the pods of each role of a job with its prerequisites, as the operator creates them."""
    build_invalid_job: Callable[[str], Manifest]
    """Return a job for a namespace that the webhook of the operator rejects."""
    build_trial: Callable[[JobManifests, Callable[[Manifest], Manifest], TrialLimits], JobManifests]
    """Return a trial job: the given job with changed pod templates, with time limits and without retries."""
    schemas: Sequence[str] = ()
    """The names of the CustomResourceDefinitions that the checks read, in addition to that of the job."""
    read_group_policy: Callable[[Manifest], Manifest]
    """Return the fields of a job from which the operator creates a pod group; empty if the job has none."""
