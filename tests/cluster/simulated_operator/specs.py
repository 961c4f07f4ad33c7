"""Random specs of PyTorchJobs that the API server and the webhook accept."""

from random import Random
from typing import Any, Final

Spec = dict[str, Any]
_SHAPES: Final = (("Master",), ("Master", "Worker"), ("Master", "Worker"), ("Worker",))
_POLICIES: Final = (None, "Always", "OnFailure", "OnFailure", "Never", "Never", "ExitCode", "ExitCode")
_CLEAN: Final = (None, "None", "Running", "All")
_METRIC: Final = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_ELASTIC: Final[tuple[Spec, ...]] = (
    {},
    {"minReplicas": 2},
    {"maxReplicas": 5},
    {"minReplicas": 1, "maxReplicas": 4, "maxRestarts": 3, "rdzvBackend": "c10d", "rdzvId": "run"},
    {"minReplicas": 1, "maxReplicas": 4, "maxRestarts": 0, "rdzvConf": [{"key": "timeout", "value": "900"}]},
    {"rdzvBackend": "etcd", "rdzvHost": "etcd.x", "rdzvPort": 2379, "minReplicas": 1, "maxReplicas": 2},
    {"standalone": True, "minReplicas": 1, "maxReplicas": 1},
    {"minReplicas": 1, "maxReplicas": 3, "metrics": [_METRIC]},
    {"rdzvConf": []},
)
# Deadlines and TTLs for which one second makes no difference: immediate, soon but after all other work, or
# longer than a test.
_DEADLINES: Final = (0, 3600, 3600)
SOON: Final = 6
_EXPIRIES: Final = (0, SOON, 3600)
_ODD: Final = (
    ("runPolicy", {"cleanPodPolicy": "Whatever"}),
    ("runPolicy", {"cleanPodPolicy": ""}),
    ("runPolicy", {"backoffLimit": -1}),
    ("runPolicy", {"managedBy": "kueue.x-k8s.io/multikueue"}),
    ("runPolicy", {"managedBy": "kubeflow.org/training-operator"}),
    ("runPolicy", {"ttlSecondsAfterFinished": -3}),
    ("runPolicy", {"activeDeadlineSeconds": -5}),
    ("nprocPerNode", "x2"),
    ("nprocPerNode", "-1"),
)


def spec(chance: Random) -> Spec:
    """Return the spec of a job."""
    roles = chance.choice(_SHAPES)
    made: Spec = {"pytorchReplicaSpecs": {role: _role(chance, role) for role in roles}}
    policy = _run_policy(chance)
    if policy or chance.random() < 0.3:
        made["runPolicy"] = policy
    if chance.random() < 0.4:
        made["nprocPerNode"] = chance.choice(("auto", "gpu", "cpu", "1", "2", "8"))
    if "Worker" in roles and chance.random() < (0.2 if "Master" in roles else 0.6):
        made["elasticPolicy"] = chance.choice(_ELASTIC)
    if chance.random() < 0.08:
        field, value = chance.choice(_ODD)
        made[field] = {**made.get(field, {}), **value} if field == "runPolicy" else value
    return made


def name(chance: Random) -> str:
    """Return the name of a job."""
    return chance.choice(("job", "train", "a1b2c3-n0-0", "x" * 50))


def _role(chance: Random, role: str) -> Spec:
    made: Spec = {"template": _template(chance)}
    policy = chance.choice(_POLICIES)
    if policy:
        made["restartPolicy"] = policy
    if role == "Master":
        made["replicas"] = 1
    elif chance.random() < 0.93:
        made["replicas"] = chance.choice((1, 1, 2, 2, 3))
    return made


def _template(chance: Random) -> Spec:
    trainer: Spec = {"name": "pytorch", "image": "nothing:1"}
    if chance.random() < 0.15:
        trainer["env"] = [{"name": chance.choice(("A", "MASTER_ADDR", "PYTHONUNBUFFERED")), "value": "b"}]
    if chance.random() < 0.15:
        ports = (
            {"name": "metrics", "containerPort": 9090},
            {"name": "pytorchjob-port", "containerPort": 2345},
        )
        trainer["ports"] = [chance.choice(ports)]
    pod: Spec = {"containers": [trainer]}
    if chance.random() < 0.1:
        pod["containers"].insert(chance.randint(0, 1), {"name": "sidecar", "image": "nothing"})
    if chance.random() < 0.1:
        pod["initContainers"] = [{"name": "fetch", "image": "nothing:2"}]
    if chance.random() < 0.1:
        pod["restartPolicy"] = chance.choice(("Never", "Always"))
    made: Spec = {"spec": pod}
    if chance.random() < 0.15:
        made["metadata"] = {"labels": {"team": "a"}, "annotations": {"note": "x"}}
    return made


def _run_policy(chance: Random) -> Spec:
    fields = {
        "cleanPodPolicy": chance.choice(_CLEAN),
        "backoffLimit": chance.choice((0, 1, 2, 3)) if chance.random() < 0.45 else None,
        "activeDeadlineSeconds": chance.choice(_DEADLINES) if chance.random() < 0.15 else None,
        "ttlSecondsAfterFinished": chance.choice(_EXPIRIES) if chance.random() < 0.2 else None,
        "suspend": chance.random() < 0.6 if chance.random() < 0.25 else None,
        "schedulingPolicy": {"minAvailable": 1, "queue": "q"} if chance.random() < 0.05 else None,
    }
    return {key: value for key, value in fields.items() if value is not None}
