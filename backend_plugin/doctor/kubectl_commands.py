"""Builds kubectl commands that create objects, such as a role that grants missing permissions."""

import json
import zlib
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from backend_plugin.doctor.facts import Permission

_API: Final = "rbac.authorization.k8s.io"


def build_apply_command(manifest: str) -> str:
    """Return a command that applies a manifest, which is YAML without single quotes.

    The text begins with ``---``, because kubectl reads text that begins with a brace as JSON.
    """
    return f"echo '---\n{manifest}' | kubectl apply -f -"


def format_uses(rules: Iterable[Permission]) -> str:
    """Return each verb with its resource, such as ``list pods, get pods/log``."""
    return ", ".join(f"{verb} {rule.resource}" for rule in rules for verb in rule.verbs)


def build_grant_command(rules: Sequence[Permission], user: str) -> str:
    """Return a command that creates one Role for each namespace of the rules, and binds it to a user.

    Rules without a namespace become a ClusterRole. If `user` is empty, the roles are not bound.
    """
    get_namespace = attrgetter("namespace")
    by_namespace = groupby(sorted(rules, key=get_namespace), get_namespace)
    items = [item for namespace, group in by_namespace for item in _build_role(group, namespace, user)]
    listed = ",\n  ".join(f"{{{item}}}" for item in items)
    manifest = f"{{apiVersion: v1, kind: List, items: [\n  {listed}]}}"
    hint = "" if user else "  # then bind it to the account of this command"
    return f"{build_apply_command(manifest)}{hint}"


def _build_role(rules: Iterable[Permission], namespace: str, user: str) -> Iterable[str]:
    written = _format_rules(rules)
    prefix = "" if namespace else "Cluster"
    # The name depends on the rules, so that a later role with other rules does not replace this one.
    name = f"kfpytorch-{zlib.crc32(''.join([user, *written]).encode()):08x}"
    metadata = f"metadata: {{name: {name}{f', namespace: {namespace}' if namespace else ''}}}"
    listed = ",\n    ".join(written)
    yield f"apiVersion: {_API}/v1, kind: {prefix}Role, {metadata}, rules: [\n    {listed}]"
    if user:
        subject = f"{{apiGroup: {_API}, kind: User, name: {json.dumps(user)}}}"
        role = f"{{apiGroup: {_API}, kind: {prefix}Role, name: {name}}}"
        yield (
            f"apiVersion: {_API}/v1, kind: {prefix}RoleBinding, {metadata},\n"
            f"    roleRef: {role}, subjects: [{subject}]"
        )


def _format_rules(rules: Iterable[Permission]) -> Sequence[str]:
    verbs: dict[tuple[str, str], dict[str, None]] = {}
    for rule in rules:
        verbs.setdefault((rule.group, rule.resource), {}).update(dict.fromkeys(rule.verbs))
    return [
        f"{{apiGroups: [{group or json.dumps('')}], resources: [{plural}], verbs: [{', '.join(names)}]}}"
        for (group, plural), names in verbs.items()
    ]
