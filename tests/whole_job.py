"""A PyTorchJob with a value for many fields, which a real API server accepts."""

_CONTAINER = {
    "name": "pytorch",
    "image": "train:1",
    "args": ["a"],
    "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"secretKeyRef": {"key": "k"}}}],
    "ports": [{"name": "metrics", "containerPort": 80}],
    "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": 1}, "requests": {"cpu": "500m"}},
    "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm", "subPath": "a"}],
    "readinessProbe": {"exec": {"command": ["true"]}},
    "securityContext": {"privileged": False},
}
_POD = {
    "containers": [_CONTAINER],
    "initContainers": [{"name": "first", "image": "a"}],
    "volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "nodeSelector": {"a": "b"},
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
    "hostname": "a",
    "terminationGracePeriodSeconds": 3,
}
_ROLE = {
    "replicas": 1,
    "restartPolicy": "Never",
    "template": {
        "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a.b/c"]},
        "spec": _POD,
    },
}
WHOLE_JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {
        "name": "job",
        "namespace": "default",
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
        "finalizers": ["a.b/c"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "a", "name": "b", "uid": "c"}],
    },
    "spec": {
        "nprocPerNode": "1",
        "pytorchReplicaSpecs": {"Master": _ROLE, "Worker": _ROLE},
        "runPolicy": {"cleanPodPolicy": "All", "backoffLimit": 1, "schedulingPolicy": {"queue": "a"}},
        "elasticPolicy": {"minReplicas": 1, "rdzvConf": [{"key": "a", "value": "b"}]},
    },
}
