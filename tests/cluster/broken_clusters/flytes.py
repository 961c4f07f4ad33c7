"""Breaks of Flyte itself: its PodTemplates and its version."""

from typing import Final

from rig.api import Manifest

from broken_clusters.break_case import Break
from broken_clusters.healthy import FLYTE, changed
from broken_clusters.manifests import deployment, gang_template
from broken_clusters.platform import scheduler


def flyte(image: str, name: str = "flyte-binary", label: str = "") -> Manifest:
    there = deployment(name, FLYTE, f"example.org/{image}")
    labels = {"app.kubernetes.io/instance": "flyte", "app.kubernetes.io/version": label}
    return {**there, "metadata": {**there["metadata"], "labels": labels}}


BREAKS: Final = (
    # ---- PodTemplates
    Break(
        finds="flyte-template-missing",
        remedy="kind: PodTemplate, metadata: {name: ",
        there=lambda _: [changed("plugins", "k8s", to={"default-pod-template-name": "gone"})],
    ),
    Break(
        finds="template-containers",
        remedy="into a container primary",
        platform={"default-pod-template-name": "platform"},
        there=lambda namespace: [
            gang_template(
                namespace,
                "platform",
                {
                    "containers": [
                        {"name": "pytorch", "image": "nothing:1", "env": [{"name": "A", "value": "1"}]}
                    ]
                },
            )
        ],
    ),
    Break(
        finds="template-containers",
        how="of-flytes-own",
        remedy="into a container default",
        there=lambda namespace: [
            changed("plugins", "k8s", to={"default-pod-template-name": "base"}),
            gang_template(
                namespace,
                "base",
                {"containers": [{"name": "main", "image": "nothing:1", "workingDir": "/root"}]},
            ),
        ],
    ),
    Break(
        finds="template-scheduler",
        remedy='{"template": {"spec": {"schedulerName": "default-scheduler"}}}',
        there=lambda namespace: [
            gang_template(
                namespace, "gang-scheduling-template", {"schedulerName": "scheduler-plugins-scheduler"}
            )
        ],
    ),
    Break(
        finds="template-gang",
        remedy="write kfpytorch: {gang: {scheduler: coscheduling, pod-groups-by: backend}}",
        there=lambda namespace: [
            scheduler("--scheduler-name=scheduler-plugins-scheduler"),
            gang_template(
                namespace, "gang-scheduling-template", {"schedulerName": "scheduler-plugins-scheduler"}
            ),
        ],
    ),
    Break(
        finds="template-placeholder",
        remedy='{"template": {"metadata": {"annotations": {"yunikorn.apache.org/task-groups": null}}}}',
        there=lambda namespace: [
            gang_template(
                namespace,
                "yunikorn-template",
                annotations=dict.fromkeys(
                    (
                        "yunikorn.apache.org/task-group-name",
                        "yunikorn.apache.org/task-groups",
                        "yunikorn.apache.org/schedulingPolicyParameters",
                    ),
                    "",
                ),
            )
        ],
    ),
    Break(
        finds="template-placeholder",
        how="one-group-for-all",
        remedy='{"template": {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": null}}}}',
        there=lambda namespace: [
            gang_template(
                namespace, "gang-scheduling-template", labels={"scheduling.x-k8s.io/pod-group": "training"}
            )
        ],
    ),
    # ---- the version of Flyte
    Break(
        finds="flyte-outdated",
        remedy="helm upgrade flyte flyte-binary --repo https://flyteorg.github.io/flyte -n flyte ",
        there=lambda _: [flyte("flyte-binary-release:v1.16.6")],
    ),
    Break(
        finds="flyte-outdated",
        how="of-flyte-core",
        remedy=" flyte-core --repo ",
        there=lambda _: [flyte("flytepropeller-release:v1.15.3", "flytepropeller")],
    ),
    Break(
        finds="flyte-version",
        remedy="kubectl label deployment/flyte-binary -n flyte --overwrite app.kubernetes.io/version=1.16.8",
        there=lambda _: [flyte("flyte-binary:latest")],
    ),
    Break(
        finds="flyte-version",
        how="by-the-charts-label",
        remedy="app.kubernetes.io/version=1.16.8",
        there=lambda _: [flyte("flyte-binary:latest", label="1.16.0")],
    ),
)
