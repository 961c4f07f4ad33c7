"""Storms of random gang jobs on real schedulers; see `gangs.storm`. Each run has another seed."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random, SystemRandom

import pytest
from gangs import observed_cluster, storm
from gangs.scene import staged
from gangs.scheduler_clusters import PLATFORMS, Grounds

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]

# With Kueue alone, a gang may be placed in part, because a quota reserves no nodes.
NAMES = ("coscheduling-backend", "yunikorn", "coscheduling-backend-kueue")


@pytest.fixture(scope="module")
def six_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    folder = tmp_path_factory.mktemp("storm")
    with Grounds(folder, observed_cluster.NODES, observed_cluster.EACH) as grounds:
        yield grounds


@pytest.mark.parametrize("name", NAMES)
def test_random_gang_load_causes_no_violation(name: str, six_nodes: Grounds, tmp_path: Path) -> None:
    seed = int(os.environ.get("KFPYTORCH_STORM_SEED") or SystemRandom().randrange(1_000_000))
    print(f"repeat with KFPYTORCH_STORM_SEED={seed}")
    platform = PLATFORMS[name]
    if name == "yunikorn":  # Placeholders of several gangs can block each other until this timeout.
        platform = replace(platform, gang={**platform.gang, "schedule-timeout": "20s"})
    with staged(six_nodes[platform.ground], platform, tmp_path) as scene:
        counts_all = "local-queue" in platform.gang
        run = storm.Storm(scene=scene, random=Random(seed), counts_all=counts_all)
        violations = run.run()
    print(f"compared: {dict(run.compared)}")
    assert not violations, "\n".join(violations)
    assert run.compared["requested"] > 0, "no waiting message had numbers"
