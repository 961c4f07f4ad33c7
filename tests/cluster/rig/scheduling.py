"""kube-scheduler with the coscheduling plugin, and the PodGroup controller."""

from rig.control_plane import HERE, dumped, free_ports
from rig.tools import module_directory

COSCHEDULING = "scheduler-plugins-scheduler"
# All profiles must have the same queue sort plugin.
_PLUGINS = {
    "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
    "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
}


def start(plane):
    """Start one kube-scheduler with a default and a coscheduling profile, and the PodGroup controller."""
    crds = module_directory("kubernetes", "sigs.k8s.io/scheduler-plugins") / "config/crd/bases"
    plane.crds(sorted(crds.glob("scheduling.x-k8s.io_*.yaml")))
    kubeconfig = plane.kubeconfig()
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "profiles": [
            {"schedulerName": name, "plugins": _PLUGINS} for name in ("default-scheduler", COSCHEDULING)
        ],
    }
    config = dumped(configuration, plane.folder / "scheduler.yaml")
    flags = (f"--config={config}", "--secure-port=0")
    scheduler = plane.enter(plane.process("kube-scheduler", flags))
    metrics, probes = free_ports(2)
    plane.enter(
        plane.process(
            "pod-group-controller",
            (f"--kubeconfig={kubeconfig}", f"--metricsAddr={HERE}:{metrics}", f"--probeAddr={HERE}:{probes}"),
        )
    )
    return scheduler
