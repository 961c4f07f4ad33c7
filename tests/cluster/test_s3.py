"""End-to-end test with an S3 store: Flyte gets the outputs and errors that pods write there."""

from collections.abc import Iterator

import pytest
import workflows
from rig import backend
from rig.backend import Backend
from rig.control_plane import dumped
from rig.namespaces import GATEWAY
from rig.propeller import PropellerOptions, RealPropeller, error_of
from rig.real_cluster import RealCluster
from rig.stores import S3

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def propeller(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPropeller]:
    backend.permit(cluster.plane)
    folder = tmp_path_factory.mktemp("s3")
    with S3(folder, cluster.place) as store:
        # The same section for propeller and our server, because either may create the pod.
        pods = {"default-env-vars": [{name: value} for name, value in store.of_pods(GATEWAY).items()]}
        settings = dumped(pods, folder / "settings.yaml")
        options = {"store": store, "plugins": {"k8s": pods}}
        flags = ("--settings", str(settings), "--output-prefixes", f"{store.uri}/")
        with (
            Backend(cluster.plane, folder, *flags, known=store.environment) as served,
            RealPropeller(
                cluster.plane, folder, PropellerOptions(connector=served.endpoint, **options)
            ) as propeller,
        ):
            yield propeller


def test_outputs_and_errors_are_returned_from_s3(propeller: RealPropeller) -> None:
    well, badly = propeller.start(workflows.succeeds, value=3), propeller.start(workflows.fails, labels=31)
    assert propeller.wait_for_outputs(well) == {"o0": "rank 0 of 2: 3"}
    error = error_of(propeller.wait(badly, 240))
    assert "ValueError: batch 7 has 31 labels for 32 images" in str(error)
    assert propeller.attempts(badly) == 1
