"""Gangs on real schedulers: every scenario on every platform that supports it, and storms of random jobs.

See `gangs.scenarios` and `gangs.storm`. Each run of a storm has another seed.
"""

import os
from dataclasses import replace
from random import Random, SystemRandom

import pytest
from gangs import observed_cluster, storm
from gangs.scenarios import SCENARIOS
from gangs.scene import staged
from gangs.scheduler_clusters import PLATFORMS, Grounds

# Sorted by platform, so that each is set up once.
ROWS = [
    pytest.param(platform, scenario, id=f"{platform}-{scenario.__name__}")
    for platform in PLATFORMS
    for scenario, platforms in SCENARIOS.items()
    if platform in platforms
]
# With Kueue alone, a gang may be placed in part, because a quota reserves no nodes.
STORMS = ("coscheduling-backend", "yunikorn", "coscheduling-backend-kueue")


@pytest.mark.parametrize(("scene", "scenario"), ROWS, indirect=["scene"], scope="session")
def test_gang_starts_completely_or_waits_with_a_reason(scene, scenario):
    try:
        scenario(scene)
    finally:
        scene.clear()  # Clean up after failures, too.


@pytest.fixture(scope="module")
def six_nodes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("storm")
    with Grounds(folder, observed_cluster.NODES, observed_cluster.EACH) as grounds:
        yield grounds


@pytest.mark.soak
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", STORMS)
def test_random_gang_load_causes_no_violation(name, six_nodes, tmp_path):
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
