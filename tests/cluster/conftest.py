"""A real cluster for the tests that want one; what a machine cannot run is reported as not run."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from gangs.grounds import PLATFORMS, Grounds
from gangs.scene import Scene, staged
from rig import backend, fake_nodes, helm, operator, real_cluster, scheduling
from rig.backend import Backend
from rig.caller import Caller
from rig.control_plane import ControlPlane, Options
from rig.process import Process
from rig.propeller import IMAGE
from rig.real_cluster import RealCluster

NOT_RUN = 75
"""The status of a tier of which something was not run, and nothing failed."""
HERE = Path(__file__).parent
# In test_backend_trains a node is taken away: in a process that runs both, "cluster" is to come before it.
LONG = (
    "cluster",
    "test_backend_trains",
    "test_histories",
    "gangs-coscheduling",
    "gangs-yunikorn",
    "test_backend_played",
    "gangs-kueue",
    "test_faults_load",
    "test_admission_real",
    "test_faults_restart",
    "test_side_by_side",
)
"""Groups that begin before all others, the longest first: all wait for what begins last."""
PLACES = {group: place for place, group in enumerate(LONG)}


# Before xdist, which writes the groups into the names of the tests.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this tier has its mark; a test that takes a minute here is no long one."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: PLACES.get(_group(item), len(LONG)))


def _group(item: pytest.Item) -> str:
    """What runs in one process: a file; of what wants gangs, or nodes, all that wants the same."""
    called = getattr(item, "callspec", None)
    if called is not None and "scene" in called.params:
        return f"gangs-{PLATFORMS[called.params['scene']].ground}"
    wants_nodes = "cluster" in getattr(item, "fixturenames", ())
    # With nodes of its own where there is a process for it: two minutes of it are waiting.
    return "cluster" if wants_nodes and item.path.stem != "test_backend_trains" else item.path.stem


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _not_run(session.config) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = NOT_RUN


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in _not_run(terminalreporter.config):
        terminalreporter.write_line(f"NOT RUN: {reason}")


def _not_run(config: pytest.Config) -> list[str]:
    """Why tests of this tier were skipped, wherever they were to run."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", ()) if reporter is not None else ()
    ours = (each for each in skipped if "cluster" in each.keywords and isinstance(each.longrepr, tuple))
    return list(dict.fromkeys(each.longrepr[2].removeprefix("Skipped: ") for each in ours))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a cluster keeps its state and its logs."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="session")
def programs() -> None:
    """What a cluster is built with."""
    if shutil.which("go") is None:
        not_run("the cluster tier is built with Go: put `go` on the PATH")


@pytest.fixture(scope="session")
def operated(folder: Path, programs: None) -> Iterator[tuple[ControlPlane, Process]]:
    """The control plane and its operator."""
    with ControlPlane(folder) as plane:
        scheduling.start(plane)
        process = operator.start(plane)
        fake_nodes.start(plane, 4, {"nvidia.com/gpu": "4"})
        yield plane, process


@pytest.fixture(scope="session")
def plane(operated: tuple[ControlPlane, Process]) -> ControlPlane:
    """The control plane, with the training-operator, the scheduler and four nodes that are played."""
    return operated[0]


@pytest.fixture(scope="session")
def training_operator(operated: tuple[ControlPlane, Process]) -> Process:
    """The operator of `plane`; who ends it starts it again."""
    return operated[1]


@pytest.fixture(scope="session")
def bare(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server that knows PyTorchJobs, of which nobody makes anything: it may be treated badly."""
    with ControlPlane(tmp_path_factory.mktemp("bare"), Options(controllers=False)) as plane:
        plane.crds(operator.crds())
        backend.permit(plane)
        yield plane


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    """Our server before `plane`; the module says its NAMESPACE."""
    backend.permit(plane)
    plane.namespace(request.module.NAMESPACE)
    with Backend(plane, tmp_path_factory.mktemp("backend")) as served:
        yield served


@pytest.fixture
def caller(request: pytest.FixtureRequest, served: Backend, tmp_path: Path) -> Iterator[Caller]:
    """Who asks it in the module's NAMESPACE, each time once."""
    with Caller(served.endpoint, tmp_path, request.module.NAMESPACE, again=False) as caller:
        yield caller


@pytest.fixture(scope="session")
def cluster(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """One whose pods are containers, on two nodes."""
    if why := real_cluster.missing():
        not_run(why)
    with RealCluster(tmp_path_factory.mktemp("nodes"), names=[IMAGE, *helm.IMAGES]) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def grounds(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """Clusters with gang schedulers."""
    with Grounds(tmp_path_factory.mktemp("grounds")) as grounds:
        yield grounds


@pytest.fixture(scope="session")
def scene(
    request: pytest.FixtureRequest, grounds: Grounds, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """The platform that a test names, and our server before it."""
    platform = PLATFORMS[request.param]
    with staged(grounds[platform.ground], platform, tmp_path_factory.mktemp(request.param)) as scene:
        yield scene


def not_run(reason: str) -> NoReturn:
    """Skip, so that others may run; and the whole is no success."""
    pytest.skip(reason)
