"""Servers, and a propeller for each."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from propeller import Execution, Outcome, Propeller, Wire

from e2e.road.serving import Served

# The whole machine has two processors; what the emulated nodes say they have is another matter.
ROOM = ("--cpus", "8", "--memory", "64Gi")


@dataclass
class Road:
    """A server, and who walks through it."""

    served: Served
    wire: Wire
    propeller: Propeller

    def start(self, task: Any, **inputs: Any) -> Execution:
        return self.propeller.start(task, **inputs)

    def run(self, task: Any, **inputs: Any) -> Outcome:
        return ended(self.start(task, **inputs))

    def nothing_runs(self, execution: Execution) -> bool:
        """Whether all processes of the execution have ended, after a while at most."""
        return self.served.left(execution.asked.execution) == []


def ended(execution: Execution, seconds: float = 60) -> Outcome:
    """Its outcome; whatever it is, the connector kept the rules."""
    outcome = execution.wait(seconds)
    assert outcome.violations == ()
    return outcome


def started(folder: Path, execution: Execution) -> list[str]:
    """The starts of the user's function that were noted, as `<attempt>.<rank>`, sorted."""
    notes = folder.glob(f"started.{execution.asked.execution}.*")
    return sorted(".".join(note.name.split(".")[2:4]) for note in notes)


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Road]]:
    """Starts a server with these options; at the end nothing of any is left."""
    roads: list[Road] = []

    def begin(*options: str, settings: Mapping[str, object] | None = None) -> Road:
        served = Served(tmp_path_factory.mktemp("road"), *ROOM, *options, settings=settings).start()
        wire = served.wire()
        roads.append(Road(served, wire, Propeller(wire, served.store)))
        return roads[-1]

    yield begin
    for road in roads:
        road.wire.close()
        code = road.served.stop()
        assert (code, road.served.left()) == (0, [])


@pytest.fixture(scope="module")
def road(serve: Callable[..., Road]) -> Road:
    """A server that most rows can share."""
    return serve()
