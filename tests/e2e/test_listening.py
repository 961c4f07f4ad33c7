"""A local run listens on the loopback interface only, and unpickles nothing that another process stored."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.linux, pytest.mark.timeout(180)]

SCRIPT = Path(__file__).parent / "scripts" / "listening.py"


def sockets(ran):
    """Return the addresses inside and outside of the loopback interface from the output of the task."""
    assert ran.code == 0, ran.err
    inside, outside = json.loads(ran.out.strip().splitlines()[-1].replace("'", '"'))
    return inside, outside


@pytest.mark.parametrize(
    ("task", "env"),
    [
        ("replicas", {}),
        ("replicas", {"FLYTE_KFPYTORCH_LOCAL": "inline"}),
        pytest.param("elastic", {"FLYTE_KFPYTORCH_FORK": "0"}, marks=pytest.mark.soak),
    ],
    ids=["replicas", "inline", "fresh interpreters"],
)
def test_processes_of_a_local_run_listen_on_loopback_only(pyflyte, task, env):
    inside, outside = sockets(pyflyte.run(SCRIPT, task, timeout=150, **env))

    assert inside  # This includes the store of the process group.
    assert outside == []


def test_elastic_agents_do_not_unpickle_foreign_store_values(pyflyte, tmp_path):
    planted = tmp_path / "planted"
    ran = pyflyte.run(SCRIPT, "attacked", "--planted", str(planted), timeout=150)
    assert "all ranks restart" in ran.err
    assert not planted.exists()
    inside, outside = sockets(ran)
    assert inside
    assert outside == []
