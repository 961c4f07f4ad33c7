"""Gangs on real schedulers: every scenario on every platform that supports it; see `gangs.scenarios`."""

from collections.abc import Callable

import pytest
from gangs.scenarios import SCENARIOS
from gangs.scene import Scene
from gangs.scheduler_clusters import PLATFORMS

# Sorted by platform, so that each is set up once.
ROWS = [
    pytest.param(platform, scenario, id=f"{platform}-{scenario.__name__}")
    for platform in PLATFORMS
    for scenario, platforms in SCENARIOS.items()
    if platform in platforms
]


@pytest.mark.parametrize(("scene", "scenario"), ROWS, indirect=["scene"], scope="session")
def test_gang_starts_completely_or_waits_with_a_reason(
    scene: Scene, scenario: Callable[[Scene], None]
) -> None:
    try:
        scenario(scene)
    finally:
        # Clean up after failures, too.
        scene.clear()
