"""Webhooks with the address of a process, and admission policies in place of webhooks of other projects."""

import base64

from rig.api import build_manifest

VERSION = "admissionregistration.k8s.io/v1"
_MUTATING = f"{VERSION}beta1"


def build_rule(group, plural):
    """Return the rule that matches the creation of objects of one kind."""
    versions = {"apiGroups": [group], "apiVersions": ["v1"]}
    return {**versions, "operations": ["CREATE"], "resources": [plural]}


def select_namespace(namespace):
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


def _build_spec(namespace, group, plural):
    matched = {"resourceRules": [build_rule(group, plural)], "namespaceSelector": select_namespace(namespace)}
    return {"failurePolicy": "Fail", "matchConstraints": matched}


def refuse(name, namespace, kind, expression, message):
    """Return a policy that rejects new objects for which `expression` is false.

    `kind` has the API group and the plural of the objects.
    """
    validations = [{"expression": expression, "message": message}]
    spec = {**_build_spec(namespace, *kind), "validations": validations}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    return [
        build_manifest(VERSION, "ValidatingAdmissionPolicy", name, spec=spec),
        build_manifest(VERSION, "ValidatingAdmissionPolicyBinding", name, spec=bound),
    ]


def alter(name, namespace, kind, patch, condition):
    """Return a policy that applies a JSON patch to new objects of a kind, if `condition` is true for them."""
    spec = {
        **_build_spec(namespace, *kind),
        "reinvocationPolicy": "Never",
        "matchConditions": [{"name": "matched", "expression": condition}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[JSONPatch{{{patch}}}]"}}],
    }
    return [
        build_manifest(_MUTATING, "MutatingAdmissionPolicy", name, spec=spec),
        build_manifest(_MUTATING, "MutatingAdmissionPolicyBinding", name, spec={"policyName": name}),
    ]


def encode_authority(certificate):
    return base64.b64encode(certificate.read_bytes()).decode()


def redirect(hook, address, authority):
    """Return a webhook that the API server calls at an address with a certificate of the authority."""
    path = hook["clientConfig"]["service"]["path"]
    return {**hook, "clientConfig": {"url": f"{address}{path}", "caBundle": authority}}
