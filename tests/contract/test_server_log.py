"""The log messages of a server about jobs."""

import logging

import pytest
from scripted_cluster import ScriptedCluster
from server_metrics import read_counts
from serving import pod, ready_server, status
from tiny_service import code_of, wait_until

from backend_plugin.core.errors import RequestRejected
from backend_plugin.shell import reconciler
from backend_plugin.shell.cluster import ClusterUnavailable, Misconfigured


async def test_existing_jobs_are_logged_in_one_line_and_changes_in_one_each(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="backend_plugin.shell.reconciler")
    cluster = ScriptedCluster()
    async with ready_server(tmp_path, cluster=cluster) as served:
        for number in range(3):
            name = served.run(await served.create(execution=f"f{number}"))
        await wait_until(lambda: str(list_reconciler_messages(caplog)).count("RUNNING: 2 of 2") == 3)
    caplog.clear()
    async with ready_server(tmp_path, cluster=cluster):
        await wait_until(lambda: any("existing" in line for line in list_reconciler_messages(caplog)))
        assert list_reconciler_messages(caplog) == ["existing jobs: 3 RUNNING"]
        cluster.apply(pod(name, "worker-0", "Failed"))
        cluster.status(name, status("Failed"))
        await wait_until(lambda: len(list_reconciler_messages(caplog)) > 1)
        assert list_reconciler_messages(caplog)[1].startswith("RETRYABLE_FAILED: ")


@pytest.mark.parametrize(
    ("error", "counted", "code"),
    [
        (ClusterUnavailable("the API server cannot be reached"), "ClusterUnavailable", "UNAVAILABLE"),
        (Misconfigured("cannot create pytorchjobs"), "Misconfigured", "UNAVAILABLE"),
        (RequestRejected(403, "Forbidden", "exceeded quota: q"), "Forbidden", "RESOURCE_EXHAUSTED"),
    ],
    ids=["away", "no binding", "quota"],
)
async def test_transient_create_error_is_retryable_logged_and_counted(tmp_path, caplog, error, counted, code):
    caplog.set_level(logging.WARNING, logger="backend_plugin.shell.connector_service")
    async with ready_server(tmp_path) as served:
        served.cluster.refusal = error
        assert (await code_of(served.create(execution="f7")))[0].name == code
        metrics = served.orders.metrics
        assert read_counts(metrics.cluster_errors) == {("create_job", counted): 1}
        assert read_counts(metrics.creates) == {(code.lower(),): 1}
        served.cluster.refusal = None
        assert await served.phase(await served.create(execution="f7")) == "QUEUED"
    (line,) = [each for each in caplog.records if each.name == "backend_plugin.shell.connector_service"]
    assert (line.levelname, vars(line)["execution"]) == ("WARNING", "f7")
    assert str(error) in line.getMessage()


def list_reconciler_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the messages of this logger only, because other tests may enable other loggers."""
    return [record.getMessage() for record in caplog.records if record.name == reconciler.__name__]
