"""Fixtures for tests that need a real cluster; tests that a machine cannot run are reported as not run."""

import shutil
from pathlib import Path

import pytest
from gangs.scene import staged
from gangs.scheduler_clusters import PLATFORMS, Grounds
from rig import backend, debian, fake_nodes, helm, operator, real_cluster, scheduling, trainer
from rig.backend import Backend
from rig.caller import Caller
from rig.control_plane import ControlPlane, Options
from rig.propeller import IMAGE, PropellerOptions, RealPropeller
from rig.real_cluster import RealCluster

NOT_RUN = 75  # The exit status of a test run with skipped tests and without failures.
HERE = Path(__file__).parent
# test_backend_trains disconnects a node. If one process runs both groups, "cluster" must come first.
LONG = (
    "cluster",
    "test_trainjob_nodes",
    "test_backend_trains",
    "test_histories",
    "gangs-coscheduling",
    "gangs-yunikorn",
    "test_backend_simulated_pods",
    "gangs-kueue",
    "test_faults_load",
    "test_admission_real",
    "test_faults_restart",
    "test_side_by_side",
)
"""Groups that start before all others, in order of decreasing duration to shorten the whole run."""
ALONE = ("test_backend_trains", "test_trainjob_nodes")
"""Modules that get a process and nodes of their own if possible, because they wait for minutes."""
PLACES = {group: place for place, group in enumerate(LONG)}


# Must run before xdist, which writes the groups into the names of the tests.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark all tests of this tier and extend their timeout, because a minute is normal here."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: PLACES.get(_group(item), len(LONG)))


def _group(item):
    """Return the group of a test, which runs in one process.

    A group is a file, or all tests that use the same gang platform or the cluster with real nodes.
    """
    called = getattr(item, "callspec", None)
    if called is not None and "scene" in called.params:
        return f"gangs-{PLATFORMS[called.params['scene']].ground}"
    wants_nodes = "cluster" in getattr(item, "fixturenames", ())
    return "cluster" if wants_nodes and item.path.stem not in ALONE else item.path.stem


def pytest_sessionfinish(session, exitstatus):
    if _not_run(session.config) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = NOT_RUN


def pytest_terminal_summary(terminalreporter):
    for reason in _not_run(terminalreporter.config):
        terminalreporter.write_line(f"NOT RUN: {reason}")


def _not_run(config):
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", ()) if reporter is not None else ()
    ours = (each for each in skipped if "cluster" in each.keywords and isinstance(each.longrepr, tuple))
    return list(dict.fromkeys(each.longrepr[2].removeprefix("Skipped: ") for each in ours))


@pytest.fixture(scope="session")
def programs():
    """Skip the test if the programs of a cluster cannot be built."""
    if shutil.which("go") is None:
        not_run("the cluster tier is built with Go: put `go` on the PATH")


@pytest.fixture(scope="session")
def operated(programs, tmp_path_factory):
    """A control plane with the scheduler and four simulated nodes, and its training operator."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as plane:
        scheduling.start(plane)
        process = operator.start(plane)
        fake_nodes.start(plane, 4, {"nvidia.com/gpu": "4"})
        yield plane, process


@pytest.fixture(scope="session")
def with_operator(operated):
    return operated[0]


@pytest.fixture(scope="module")
def plane(request):
    """The control plane that the module names in PLANE, or that with the training operator."""
    return request.getfixturevalue(getattr(request.module, "PLANE", "with_operator"))


@pytest.fixture(scope="session")
def training_operator(operated):
    """The training operator of `plane`. A test that stops it must start it again."""
    return operated[1]


@pytest.fixture(scope="session")
def with_trainer(programs, tmp_path_factory):
    """A control plane with Trainer, JobSet, the scheduler and four simulated nodes."""
    with ControlPlane(tmp_path_factory.mktemp("trainer")) as plane:
        scheduling.start(plane)
        fake_nodes.start(plane, 4, {"nvidia.com/gpu": "4"})
        trainer.start(plane)
        yield plane


@pytest.fixture(scope="session")
def bare(programs, tmp_path_factory):
    """An API server with the PyTorchJob CRD but without controllers; tests may damage it."""
    with ControlPlane(tmp_path_factory.mktemp("bare"), Options(controllers=False)) as plane:
        plane.crds(operator.crds())
        backend.permit(plane)
        yield plane


@pytest.fixture(scope="session")
def with_nodes(cluster):
    return cluster.plane


@pytest.fixture(scope="module")
def folder(request, plane, tmp_path_factory):
    """The folder of the server and propeller, which containers see at the same path."""
    if not plane.place.is_apart:
        return tmp_path_factory.mktemp("backend")
    folder = plane.folder / "shared" / request.module.__name__
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def served(request, plane, folder):
    """Our server, connected to `plane`; the test module defines NAMESPACE, and may define SETTINGS."""
    backend.permit(plane)
    plane.namespace(request.module.NAMESPACE)
    with Backend(plane, folder, settings=getattr(request.module, "SETTINGS", None)) as served:
        yield served


@pytest.fixture(scope="module")
def propeller(plane, served, folder):
    """A propeller that sends the tasks of type pytorch to our server."""
    with RealPropeller(plane, folder, PropellerOptions(connector=served.endpoint)) as propeller:
        yield propeller


@pytest.fixture
def caller(request, served, tmp_path):
    """A client of our server for the module's NAMESPACE, without retries."""
    with Caller(served.endpoint, tmp_path, request.module.NAMESPACE, again=False) as caller:
        yield caller


@pytest.fixture(scope="session")
def cluster(programs, tmp_path_factory):
    """A cluster whose pods are containers, with two nodes."""
    if why := real_cluster.missing():
        not_run(why)
    with RealCluster(tmp_path_factory.mktemp("nodes"), names=[IMAGE, *helm.IMAGES]) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def mpi_packages():
    try:
        return debian.packages(debian.MPI)
    except debian.NoPackages as error:
        not_run(str(error))


@pytest.fixture(scope="session")
def grounds(programs, tmp_path_factory):
    with Grounds(tmp_path_factory.mktemp("grounds")) as grounds:
        yield grounds


@pytest.fixture(scope="session")
def scene(request, grounds, tmp_path_factory):
    """The platform that a test names, with our server."""
    platform = PLATFORMS[request.param]
    with staged(grounds[platform.ground], platform, tmp_path_factory.mktemp(request.param)) as scene:
        yield scene


def not_run(reason):
    """Skip the test. The whole run then ends with a status other than success."""
    pytest.skip(reason)
