"""Servers, each with a FlytePropeller."""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest
from propeller import Propeller, Wire

from e2e.propeller_flow.server_process import RoadServer

# The machine has two processors, but the embedded nodes report more capacity.
ROOM = ("--cpus", "8", "--memory", "64Gi")


@dataclass
class Road:
    served: RoadServer
    wire: Wire
    propeller: Propeller

    def start(self, task, **inputs):
        return self.propeller.start(task, **inputs)

    def nothing_runs(self, execution):
        """True if all processes of the execution end within the timeout."""
        return self.served.left(execution.node.execution) == []


def wait_for_outcome(execution, seconds=60):
    """Return the outcome, and check that the connector followed the rules."""
    outcome = execution.wait(seconds)
    assert outcome.violations == ()
    return outcome


def started(folder, execution):
    """Return the recorded starts of the user's function, as sorted `<attempt>.<rank>`."""
    notes = folder.glob(f"started.{execution.node.execution}.*")
    return sorted(".".join(note.name.split(".")[2:4]) for note in notes)


@contextmanager
def open_road(root, *options, settings=None):
    """Yield a running server. No process may remain at the end."""
    served = RoadServer(root, *ROOM, *options, settings=settings).start()
    wire = served.wire()
    yield Road(served, wire, Propeller(wire, served.store))
    wire.close()
    assert (served.stop(), served.left()) == (0, [])


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with ExitStack() as roads:
        yield lambda *options, **more: roads.enter_context(
            open_road(tmp_path_factory.mktemp("road"), *options, **more)
        )


@pytest.fixture(scope="session")
def road(tmp_path_factory):
    with open_road(tmp_path_factory.mktemp("road")) as road:
        yield road
