"""Errors of the API server for the pods and services that the operator creates."""

from typing import Any

import pytest

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.admission import admit_pod, admit_service


def a_pod(container: Any = None, **spec: Any) -> dict[str, Any]:
    """Build a pod with one container."""
    containers = [{"name": "c", "image": "a:1", **(container or {})}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": "ns"},
        "spec": {"containers": containers, **spec},
    }


def refusal(manifest: Any) -> tuple[int, str, str]:
    with pytest.raises(RequestRejected) as refused:
        admit_pod(manifest)
    message = refused.value.message
    assert message.startswith('Pod "pod" is invalid: ')
    return refused.value.code, refused.value.reason, message.removeprefix('Pod "pod" is invalid: ')


def test_a_pod_is_stored_with_the_servers_defaults() -> None:
    resources = {"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": 1}}
    pod = a_pod({"image": "registry:5000/a:1", "ports": [{"containerPort": 80}], "resources": resources})
    assert admit_pod(pod) == {
        **pod,
        "spec": {
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "containers": [
                {
                    "name": "c",
                    "image": "registry:5000/a:1",
                    "imagePullPolicy": "IfNotPresent",
                    "ports": [{"protocol": "TCP", "containerPort": 80}],
                    "resources": {**resources, "requests": {"cpu": 1, "memory": "1Gi"}},
                }
            ],
        },
        "status": {"phase": "Pending"},
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("registry:5000/a", "Always"),
        ("a:1", "IfNotPresent"),
        ("a@sha256:0", "IfNotPresent"),
    ],
)
def test_an_image_that_may_change_is_pulled_always(image: str, policy: str) -> None:
    stored: Any = admit_pod(a_pod({"image": image}))
    assert stored["spec"]["containers"][0]["imagePullPolicy"] == policy


AT = "spec.containers[0]"
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start"
    " and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must"
    " start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used"
    " for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must"
    " start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    r" '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
REFUSED = {
    "a restart policy": (
        a_pod(restartPolicy="Sometimes"),
        'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure",'
        ' "Never"',
    ),
    "a DNS policy": (
        a_pod(dnsPolicy="Mine"),
        'spec.dnsPolicy: Unsupported value: "Mine": supported values: "ClusterFirst",'
        ' "ClusterFirstWithHostNet", "Default", "None"',
    ),
    "a grace period": (
        a_pod(terminationGracePeriodSeconds=-1),
        "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
    ),
    "a deadline": (
        a_pod(activeDeadlineSeconds=0),
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
    ),
    "no containers": (a_pod(containers=[]), "spec.containers: Required value"),
    "a container's name": (a_pod({"name": "A"}), f'{AT}.name: Invalid value: "A": {LABEL_RULE}'),
    "a name with dots": (a_pod({"name": "a.b"}), f'{AT}.name: Invalid value: "a.b": must not contain dots'),
    "no name": (a_pod({"name": ""}), f"{AT}.name: Required value"),
    "a name twice": (
        a_pod(initContainers=[{"name": "c", "image": "b"}]),
        'spec.initContainers[0].name: Duplicate value: "c"',
    ),
    "no image": (a_pod({"image": ""}), f"{AT}.image: Required value"),
    "an image in spaces": (
        a_pod({"image": " a"}),
        f'{AT}.image: Invalid value: " a": must not have leading or trailing whitespace',
    ),
    "a pull policy": (
        a_pod({"imagePullPolicy": "Often"}),
        f'{AT}.imagePullPolicy: Unsupported value: "Often": supported values: "Always", "IfNotPresent",'
        ' "Never"',
    ),
    "a restart policy of its own": (
        a_pod({"restartPolicy": "Always"}),
        f"{AT}.restartPolicy: Forbidden: may not be set for non-init containers",
    ),
    "a variable without a name": (a_pod({"env": [{"name": ""}]}), f"{AT}.env[0].name: Required value"),
    "a variable's name": (
        a_pod({"env": [{"name": "A=B"}]}),
        f'{AT}.env[0].name: Invalid value: "A=B": a valid environment variable name must consist only of'
        " printable ASCII characters other than '='",
    ),
    "a value twice": (
        a_pod({"env": [{"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}),
        f'{AT}.env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
    ),
    "a value from nowhere": (
        a_pod({"env": [{"name": "A", "valueFrom": {}}]}),
        f'{AT}.env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`,'
        " `configMapKeyRef` or `secretKeyRef`",
    ),
    "a value from two places": (
        a_pod({"env": [{"name": "A", "valueFrom": {"fieldRef": {}, "secretKeyRef": {}}}]}),
        f'{AT}.env[0].valueFrom: Invalid value: "": may not have more than one field specified at a time',
    ),
    "a volume that is not there": (
        a_pod({"volumeMounts": [{"name": "gone", "mountPath": "/x"}]}),
        f'{AT}.volumeMounts[0].name: Not found: "gone"',
    ),
    "a mount of nothing": (
        a_pod({"volumeMounts": [{"name": "", "mountPath": ""}]}),
        f"[{AT}.volumeMounts[0].name: Required value, {AT}.volumeMounts[0].mountPath: Required value]",
    ),
    "two mounts in one place": (
        a_pod(
            {"volumeMounts": [{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}]},
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        f'{AT}.volumeMounts[1].mountPath: Invalid value: "/x": must be unique',
    ),
    "a path out of a volume": (
        a_pod(
            {"volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "a/../.."}]},
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        f"{AT}.volumeMounts[0].subPath: Invalid value: \"a/../..\": must not contain '..'",
    ),
    "a volume of nothing": (
        a_pod(volumes=[{"name": ""}]),
        "[spec.volumes[0].name: Required value, spec.volumes[0]: Required value: must specify a volume type]",
    ),
    "a volume of two kinds, twice": (
        a_pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}, "hostPath": {}}]),
        '[spec.volumes[1].name: Duplicate value: "v", spec.volumes[1].hostPath: Forbidden: may not specify'
        " more than 1 volume type]",
    ),
    "a volume's name": (
        a_pod(volumes=[{"name": "V", "emptyDir": {}}]),
        f'spec.volumes[0].name: Invalid value: "V": {LABEL_RULE}',
    ),
    "ports": (
        a_pod({"ports": [{"name": "a", "containerPort": 0}, {"name": "a", "containerPort": 70000}]}),
        f'[{AT}.ports[0].containerPort: Required value, {AT}.ports[1].name: Duplicate value: "a",'
        f" {AT}.ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive]",
    ),
    "a port's name": (
        a_pod({"ports": [{"name": "-1--", "containerPort": 1}]}),
        f'[{AT}.ports[0].name: Invalid value: "-1--": must contain at least one letter (a-z),'
        f' {AT}.ports[0].name: Invalid value: "-1--": must not contain consecutive hyphens,'
        f' {AT}.ports[0].name: Invalid value: "-1--": must not begin or end with a hyphen]',
    ),
    "a long name of a port": (
        a_pod({"ports": [{"name": "a-name-that-is-long", "containerPort": 1}]}),
        f'{AT}.ports[0].name: Invalid value: "a-name-that-is-long": must be no more than 15 characters',
    ),
    "a capital in a port's name": (
        a_pod({"ports": [{"name": "aB", "containerPort": 1}]}),
        f'{AT}.ports[0].name: Invalid value: "aB": must contain only alpha-numeric characters (a-z, 0-9),'
        " and hyphens (-)",
    ),
    "a protocol": (
        a_pod({"ports": [{"containerPort": 1, "protocol": "ICMP"}]}),
        f'{AT}.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"',
    ),
    "more requested than allowed": (
        a_pod({"resources": {"limits": {"cpu": 1}, "requests": {"cpu": 2}}}),
        f'{AT}.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    "fewer devices requested than allowed": (
        a_pod({"resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}}}),
        f'{AT}.resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2',
    ),
    "devices without a limit": (
        a_pod({"resources": {"requests": {"nvidia.com/gpu": 1}}}),
        f"{AT}.resources.limits: Required value: Limit must be set for non overcommitable resources",
    ),
    "half a device": (
        a_pod({"resources": {"limits": {"nvidia.com/gpu": "500m"}}}),
        f'{AT}.resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer',
    ),
    "less than nothing": (
        a_pod({"resources": {"limits": {"cpu": "-1"}}}),
        f'{AT}.resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ),
    "something unheard of": (
        a_pod({"resources": {"limits": {"gpus": 1}}}),
        f'{AT}.resources.limits[gpus]: Invalid value: "gpus": must be a standard resource for containers',
    ),
    "a probe of nothing": (
        a_pod({"readinessProbe": {}}),
        f"{AT}.readinessProbe: Required value: must specify a handler type",
    ),
    "a probe of two kinds": (
        a_pod({"livenessProbe": {"exec": {}, "grpc": {"port": 1}}}),
        f"{AT}.livenessProbe.grpc: Forbidden: may not specify more than 1 handler type",
    ),
    "a toleration of everything": (
        a_pod(tolerations=[{"value": "a"}]),
        'spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty,'
        ' which means "match all values and all keys"',
    ),
    "a toleration of a value": (
        a_pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        "spec.tolerations[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'",
    ),
    "a toleration's words": (
        a_pod(tolerations=[{"key": "a", "operator": "Is", "effect": "No", "tolerationSeconds": 1}]),
        '[spec.tolerations[0].operator: Unsupported value: "Is": supported values: "Equal", "Exists",'
        ' spec.tolerations[0].effect: Unsupported value: "No": supported values: "NoExecute", "NoSchedule",'
        ' "PreferNoSchedule", spec.tolerations[0].effect: Invalid value: "No": effect must be'
        " 'NoExecute' when `tolerationSeconds` is set]",
    ),
    "a toleration's key": (
        a_pod(tolerations=[{"key": "a b", "operator": "Exists"}]),
        f'spec.tolerations[0].key: Invalid value: "a b": name part {NAME_RULE}',
    ),
    "a node's labels": (
        a_pod(nodeSelector={"a b": "c d"}),
        f'[spec.nodeSelector: Invalid value: "a b": name part {NAME_RULE},'
        f' spec.nodeSelector: Invalid value: "c d": {VALUE_RULE}]',
    ),
    "a class's name": (
        a_pod(priorityClassName="A"),
        f'spec.priorityClassName: Invalid value: "A": {SUBDOMAIN_RULE}',
    ),
    "a resource's name": (
        a_pod({"resources": {"limits": {"a/b c": 1}}}),
        f'{AT}.resources.limits: Invalid value: "a/b c": name part {NAME_RULE}',
    ),
    "a host's name": (a_pod(hostname="A"), f'spec.hostname: Invalid value: "A": {LABEL_RULE}'),
}


@pytest.mark.parametrize(("manifest", "said"), REFUSED.values(), ids=REFUSED)
def test_a_pod_that_could_not_be_is_refused(manifest: Any, said: str) -> None:
    assert refusal(manifest) == (422, "Invalid", said)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"labels": {"a b": "c"}}, f'metadata.labels: Invalid value: "a b": name part {NAME_RULE}'),
        ({"labels": {"a": "b c"}}, f'metadata.labels: Invalid value: "b c": {VALUE_RULE}'),
        (
            {"labels": {"a": "b" * 64}},
            f'metadata.labels: Invalid value: "{"b" * 64}": must be no more than 63 characters',
        ),
        ({"labels": {"A_/a": ""}}, f'metadata.labels: Invalid value: "A_/a": prefix part {SUBDOMAIN_RULE}'),
        ({"labels": {"/a": ""}}, 'metadata.labels: Invalid value: "/a": prefix part must be non-empty'),
        (
            {"labels": {"a/": ""}},
            '[metadata.labels: Invalid value: "a/": name part must be non-empty,'
            f' metadata.labels: Invalid value: "a/": name part {NAME_RULE}]',
        ),
        (
            {"labels": {"a/b/c": ""}},
            f'metadata.labels: Invalid value: "a/b/c": a qualified name {NAME_RULE} with an optional DNS'
            " subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ),
        ({"annotations": {"a b": ""}}, f'metadata.annotations: Invalid value: "a b": name part {NAME_RULE}'),
        (
            {"annotations": {"a": "b" * 262_144}},
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        ({"finalizers": ["a b"]}, f'metadata.finalizers: Invalid value: "a b": name part {NAME_RULE}'),
        ({"namespace": ""}, "metadata.namespace: Required value"),
        ({"namespace": "A"}, f'metadata.namespace: Invalid value: "A": {LABEL_RULE}'),
    ],
)
def test_metadata_is_looked_at_as_that_of_any_object(metadata: Any, said: str) -> None:
    pod = a_pod()
    assert refusal({**pod, "metadata": {**pod["metadata"], **metadata}}) == (422, "Invalid", said)


@pytest.mark.parametrize(
    "metadata",
    [{"labels": {"a": 1}}, {"labels": ["a"]}, {"finalizers": "a"}, {"name": 1}],
)
def test_metadata_that_cannot_be_read_is_a_bad_request(metadata: Any) -> None:
    pod = a_pod()
    with pytest.raises(RequestRejected) as refused:
        admit_pod({**pod, "metadata": {**pod["metadata"], **metadata}})
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")


def a_service(*ports: Any, name: str = "service") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": list(ports)},
    }


def test_a_service_is_stored_with_the_servers_defaults() -> None:
    service = a_service({"name": "a", "port": 80})
    port = {"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80}
    assert admit_service(service) == {**service, "spec": {**service["spec"], "ports": [port]}}
    assert admit_service(a_service()) == a_service()


@pytest.mark.parametrize(
    ("service", "said"),
    [
        (
            a_service(name="a" * 64),
            f'metadata.name: Invalid value: "{"a" * 64}": must be no more than 63 characters',
        ),
        (
            a_service({"port": 1}, {"port": 2}),
            "[spec.ports[0].name: Required value, spec.ports[1].name: Required value]",
        ),
        (
            a_service({"name": "a", "port": 1}, {"name": "a", "port": 1}),
            '[spec.ports[1].name: Duplicate value: "a",'
            ' spec.ports[1]: Duplicate value: {"port":1,"protocol":"TCP"}]',
        ),
        (
            a_service({"name": "A", "port": 0}),
            f'[spec.ports[0].name: Invalid value: "A": {LABEL_RULE},'
            " spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive]",
        ),
    ],
)
def test_a_service_that_could_not_be_is_refused(service: Any, said: str) -> None:
    with pytest.raises(RequestRejected) as refused:
        admit_service(service)
    name = service["metadata"]["name"]
    assert (refused.value.code, refused.value.reason, refused.value.message) == (
        422,
        "Invalid",
        f'Service "{name}" is invalid: {said}',
    )
