"""Storms of random gang jobs on real schedulers; see `gangs.storm`. Each run has another seed."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random, SystemRandom

import pytest
from gangs import observed_cluster, storm
from gangs.scene import staged
from gangs.scheduler_clusters import PLATFORMS, Grounds, Size
from rig.tools import COMPONENTS

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]

# With Kueue alone, a gang may be placed in part, because a quota reserves no nodes.
NAMES = ("coscheduling-backend", "yunikorn", "coscheduling-backend-kueue")


@pytest.fixture(scope="module")
def six_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    size = Size(nodes=observed_cluster.NODES, gpus=observed_cluster.EACH)
    with Grounds(tmp_path_factory.mktemp("storm"), size) as grounds:
        yield grounds


def require_programs(ground: str) -> None:
    """Fail if a program of the cluster is not built, because a skipped test would pass unnoticed."""
    modules = {"kubernetes", "training-operator", "kwok", *({ground} - {"coscheduling"})}
    programs = {
        each: part.home / each for part in COMPONENTS if part.module in modules for each in part.programs
    }
    missing = [name for name, path in programs.items() if not path.exists()]
    assert not missing, f"run `make tools`: {', '.join(missing)} of the cluster are not built"
    assert shutil.which("go") is not None, "put `go` on the PATH: it finds the manifests of the cluster"


@pytest.mark.parametrize("name", NAMES)
def test_random_gang_load_causes_no_violation(name: str, six_nodes: Grounds, tmp_path: Path) -> None:
    seed = int(os.environ.get("KFPYTORCH_STORM_SEED") or SystemRandom().randrange(1_000_000))
    print(f"repeat with KFPYTORCH_STORM_SEED={seed}")
    platform = PLATFORMS[name]
    if name == "yunikorn":  # Placeholders of several gangs can block each other until this timeout.
        platform = replace(platform, gang={**platform.gang, "schedule-timeout": "20s"})
    require_programs(platform.ground)
    with staged(six_nodes[platform.ground], platform, tmp_path) as scene:
        counts_all = "local-queue" in platform.gang
        run = storm.Storm(scene=scene, random=Random(seed), counts_all=counts_all)
        violations = run.run()
    print(f"compared: {dict(run.compared)}")
    assert not violations, "\n".join(violations)
    assert run.compared["requested"] > 0, "no waiting message had numbers"
