"""The chart on real nodes: installed, used by propeller, upgraded and rolled back under a job, removed."""

import contextlib
import re
import sys
from pathlib import Path

import grpc
import pytest
import training_tasks
import yaml
from flyteidl.admin import agent_pb2 as admin
from rig.api import build_manifest, jobs, pods
from rig.caller import Caller
from rig.control_plane import free_ports
from rig.helm import CHART, NAMESPACE, NEXT, RELEASE, Helm
from rig.images import REPOSITORY
from rig.namespaces import GATEWAY
from rig.process import Process, wait_for
from rig.propeller import NAMESPACE as TASKS
from rig.propeller import PropellerOptions, RealPropeller
from rig.stores import S3

from backend_plugin.core import job_ref
from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.job import JobRef
from backend_plugin.shell import job_service

pytestmark = pytest.mark.timeout(600)

NODE_PORT = 30443
SECRET = "store"
HOST = f"{RELEASE}.{NAMESPACE}.svc.cluster.local"
WELL = {"dns-not-ready": "warning", "not-readable": "unknown"}
"""Expected findings: DNS is not a Deployment in this cluster, and the doctor may not list Secrets."""
OURS = f"app.kubernetes.io/instance={RELEASE}"
SERVERS = f"{OURS},app.kubernetes.io/component=server"
NONE_OF_ROOTS = {"Uid": "65532", "CapEff": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"}
"""The values in /proc/PID/status; 2 is a seccomp filter."""


class Installed:
    """A release of the chart; a context manager that installs and removes it."""

    def __init__(self, cluster, store, folder):
        self.cluster = cluster
        self.store = store
        self.helm = Helm(folder, cluster.plane.kubeconfig())
        # The same section for propeller and our server, because either may create the pod.
        self.platform = {
            "default-env-vars": [{name: value} for name, value in store.environment_at(GATEWAY).items()]
        }
        self._values = {
            "outputPrefixes": [f"{store.uri}/"],
            "extraEnvFrom": [{"secretRef": {"name": SECRET}}],
            "platform": self.platform,
            "service": {"type": "NodePort", "nodePort": NODE_PORT},
            "networkPolicy": {"allowedCIDRs": ["0.0.0.0/0"]},
        }

    def __enter__(self):
        self.cluster.plane.namespace(NAMESPACE)
        self.secret(SECRET, self.store.environment_at(GATEWAY))
        self.run("install", CHART, *self.helm.values(self._values))
        return self

    def __exit__(self, *_):
        self.run("uninstall", "--ignore-not-found")

    def secret(self, name, content, kind="Opaque"):
        fields = {"type": kind, "stringData": dict(content)}
        self.cluster.admin.apply(build_manifest("v1", "Secret", name, NAMESPACE, **fields))

    def upgrade(self, values):
        self.run("upgrade", CHART, *self.helm.values({**self._values, **values}))

    def run(self, verb, *words):
        """Run a command of Helm about the release, and wait until its objects are ready or deleted."""
        self.helm.run(verb, RELEASE, *words, "--namespace", NAMESPACE, "--wait", "--timeout=2m")

    def servers(self):
        return self.cluster.admin.items(pods(NAMESPACE), labelSelector=SERVERS)

    def list_names(self, path):
        """Return the names of the objects of one kind that belong to the release."""
        return [each["metadata"]["name"] for each in self.cluster.admin.items(path, labelSelector=OURS)]

    @contextlib.contextmanager
    def endpoint(self, folder):
        """Yield an address of the Service that is reachable from this machine."""
        (port,) = free_ports(1)
        place = self.cluster.plane.place
        node = self.cluster.nodes[0].station.address
        command = [sys.executable, "-m", "rig.forwarder", place.listen, str(port), node, str(NODE_PORT)]
        known = {"PYTHONPATH": str(REPOSITORY / "tests" / "cluster")}
        with Process(command, folder / "service.log", environment=known, place=place):
            yield f"{place.address}:{port}"


@pytest.fixture(scope="module")
def installed(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("helm")
    with S3(folder, cluster.plane.place) as store, Installed(cluster, store, folder) as installed:
        yield installed


@pytest.fixture(scope="module")
def propeller(installed):
    """A propeller with the connector configuration of the chart, except for the address of the Service."""
    folder = installed.cluster.shared / "installed"
    folder.mkdir()
    with installed.endpoint(folder) as endpoint:
        connector = yaml.safe_load((CHART / "files/connector.yaml").read_text())
        connector["defaultConnector"]["endpoint"] = endpoint
        plugins = {"connector-service": connector, "k8s": installed.platform}
        options = PropellerOptions(connector=endpoint, plugins=plugins, store=installed.store)
        with RealPropeller(installed.cluster.plane, folder, options) as propeller:
            yield propeller


def processes():
    """Return /proc/PID/status of the servers that run in containers."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"/etc/kfpytorch/settings.yaml" in (each / "cmdline").read_bytes():
                lines = (line.split() for line in (each / "status").read_text().splitlines())
                found.append({line[0].rstrip(":"): line[1] for line in lines if len(line) > 1})
    return found


def job_pods(cluster, execution):
    found = cluster.admin.items(pods(TASKS), labelSelector=f"execution-id={execution.name}")
    return {each["metadata"]["uid"] for each in found}


def test_two_servers_are_ready_on_two_nodes_without_privileges(installed):
    servers = installed.servers()
    assert {each["spec"]["nodeName"] for each in servers} == {"node-1", "node-2"}
    ready = [[status["ready"] for status in each["status"]["containerStatuses"]] for each in servers]
    assert ready == [[True], [True]]
    assert [{key: each[key] for key in NONE_OF_ROOTS} for each in processes()] == [NONE_OF_ROOTS] * 2


def test_propeller_runs_a_task_through_the_service(propeller):
    execution = propeller.start(training_tasks.succeeds, value=3)
    assert propeller.wait_for_outputs(execution) == {"o0": "rank 0 of 2: 3"}


def status_of(call):
    """Return the status code of a call, or of the first message of a stream."""
    with contextlib.suppress(grpc.RpcError):
        return grpc.StatusCode.OK if next(iter(call), None) is not None else call.code()
    return call.code()


def test_calls_without_credentials_are_rejected(installed, tmp_path):
    """The nodes do not enforce NetworkPolicies, so the caller reaches the port and meets the other layers.

    The golden file of `test_chart_templates` contains the rendered policy.
    """
    prefix = f"{installed.store.uri}/a"
    job = JobRef(dialect=DEFAULT.name, namespace=TASKS, name="f1-n0-0", output_prefix=prefix)
    deletion = admin.DeleteTaskRequest(resource_meta=job_ref.encode(job)).SerializeToString()
    sent = {
        "/flyteidl.service.AsyncAgentService/DeleteTask": deletion,
        f"/{job_service.JOB_SERVICE}/CancelJob": b"",
        f"/{job_service.NODE_SERVICE}/SetNodeState": b"",
    }
    with installed.endpoint(tmp_path) as endpoint, grpc.insecure_channel(endpoint) as channel:
        grpc.channel_ready_future(channel).result(60)
        codes = [status_of(channel.unary_stream(path)(body, timeout=60)) for path, body in sent.items()]
        assert codes == [grpc.StatusCode.PERMISSION_DENIED, *[grpc.StatusCode.UNAUTHENTICATED] * 2]
        for namespace in ("kube-system", "default", NAMESPACE):
            with Caller(endpoint, tmp_path, namespace) as caller:
                assert caller.get(caller.create()).phase == "FAILED"
            assert installed.cluster.admin.items(jobs(namespace)) == []


def doctored(installed):
    """Run `helm test`; return the findings with their levels, the doctor's container and its log."""
    installed.helm.run("test", RELEASE, "--namespace", NAMESPACE, "--timeout=2m")
    path = pods(NAMESPACE, f"{RELEASE}-doctor")
    pod, log = installed.cluster.admin.get(path), installed.cluster.admin.request("GET", f"{path}/log").text
    assert pod is not None
    assert re.search(r"^\d+ of \d+ checks made", log, re.MULTILINE), log
    found = {each[1]: each[0] for each in re.findall(r"^(error|warning|unknown)  (\S+)$", log, re.MULTILINE)}
    return found, pod["spec"]["containers"][0], log


def test_helm_test_runs_the_doctor_without_findings(installed):
    """Run after a job has a status, because the operator is a process here and not a visible Deployment."""
    found, container, log = doctored(installed)
    assert found == WELL, log
    assert f"--connector={HOST}:8000" in container["args"]


def test_upgrade_and_rollback_cost_a_running_job_no_attempt(installed, propeller):
    stop_file = installed.cluster.shared / "upgraded"
    execution = propeller.start(training_tasks.reduces_until, stop_file=str(stop_file))
    propeller.until_shown(execution, "RUNNING", 240)
    before = job_pods(installed.cluster, execution), {each["metadata"]["uid"] for each in installed.servers()}

    installed.upgrade({"image": {"tag": NEXT}, "server": {"logLevel": "debug"}})
    images = {each["spec"]["containers"][0]["image"] for each in installed.servers() if is_kept(each)}
    assert images == {f"{RELEASE}:{NEXT}"}
    during = propeller.start(training_tasks.fails, labels=31)
    installed.run("rollback")
    assert not before[1] & {each["metadata"]["uid"] for each in installed.servers()}

    assert job_pods(installed.cluster, execution) == before[0]
    stop_file.touch()
    propeller.wait_for_success(execution)
    assert propeller.attempts(execution) == 1
    assert "ValueError: batch 7 has 31 labels for 32 images" in propeller.wait_for_failure(during)
    assert propeller.recorder.tasks(during.name)[-1].kind == "USER"


def is_kept(pod):
    return "deletionTimestamp" not in pod["metadata"]


def test_servers_with_a_certificate_are_ready_and_checked_by_helm_test(installed):
    """With an authority for client certificates, the doctor skips its check of the connector."""
    authority = installed.cluster.plane.authority
    pair = authority.server("connector", (HOST,))
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate}
    texts = {name: file.read_text() for name, file in files.items()}
    installed.secret("tls", texts, "kubernetes.io/tls")
    installed.upgrade({"tls": {"existingSecret": "tls"}})
    containers = [each["spec"]["containers"][0] for each in installed.servers() if is_kept(each)]
    probes = [each["readinessProbe"]["exec"]["command"] for each in containers]
    assert probes == [["kfpytorch", "health", "--tls-server-name", HOST]] * 2
    found, container, log = doctored(installed)
    assert found == WELL, log
    assert f"--connector=grpcs://{HOST}:8000" in container["args"]
    installed.upgrade({"tls": {"existingSecret": "tls", "clientCaKey": "ca.crt"}})
    found, container, log = doctored(installed)
    assert found == WELL, log
    assert not [each for each in container["args"] if each.startswith("--connector")]


def test_uninstall_deletes_all_objects_of_the_release(installed):
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    kinds = (
        "/apis/apps/v1/deployments",
        "/api/v1/services",
        "/api/v1/configmaps",
        "/api/v1/serviceaccounts",
        "/apis/policy/v1/poddisruptionbudgets",
        f"{rbac}/clusterroles",
        f"{rbac}/clusterrolebindings",
    )
    assert all(installed.list_names(path) for path in kinds)
    installed.run("uninstall")
    assert not any(installed.list_names(path) for path in kinds)
    wait_for(installed.servers, lambda servers: not servers)
