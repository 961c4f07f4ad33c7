"""Selects the taints that a pod does not tolerate, and builds the settings that tolerate them."""

import json
from collections.abc import Sequence
from typing import Final

from backend_plugin.embedded.node_affinity import Taint
from backend_plugin.embedded.scheduling_cycle import NodeInfo, PodInfo

_TEMPORARY: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
)
"""Prefixes of taint keys that a controller sets and removes; a pod must not tolerate them."""
_NOT_READY: Final = "/agent-not-ready"
"""The suffix of taint keys that agents of a node, such as a CNI plugin, use until they are ready."""


def list_untolerated(claim: PodInfo, node: NodeInfo) -> Sequence[Taint]:
    """Return the taints of a node that a pod does not tolerate."""
    return [each for each in node.taints if claim.wishes.find_untolerated_taint([each]) is not None]


def is_temporary(taint: Taint) -> bool:
    """True if a controller sets the taint while a condition of the node lasts."""
    return taint.key.startswith(_TEMPORARY) or taint.key.endswith(_NOT_READY)


def get_temporary_key(taints: Sequence[Taint]) -> str:
    """Return the key of the first taint that a controller removes."""
    return next(each.key for each in taints if is_temporary(each))


def format_taint(taint: Taint) -> str:
    """Return a taint as kubectl writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def format_toleration_settings(claim: PodInfo, taints: Sequence[Taint]) -> str:
    """Return settings that make the pods of a role tolerate the taints."""
    of_resources = [each for each in taints if claim.requests.get(each.key)]
    of_all = [each for each in taints if each not in of_resources]
    by_resource = ", ".join(f"{each.key}: [{_format_toleration(each)}]" for each in of_resources)
    written = [f"resource-tolerations: {{{by_resource}}}"] if of_resources else []
    if of_all:
        written.append(f"default-tolerations: [{', '.join(map(_format_toleration, of_all))}]")
    return f"write plugins: {{k8s: {{{', '.join(written)}}}}}"


def _format_toleration(taint: Taint) -> str:
    how = f"operator: Equal, value: {json.dumps(taint.value)}" if taint.value else "operator: Exists"
    return f"{{key: {taint.key}, {how}, effect: {taint.effect}}}"
