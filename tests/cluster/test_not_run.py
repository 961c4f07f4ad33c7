"""Tests that this machine cannot run are reported as not run, and not as passed."""

import sys
from pathlib import Path

from conftest import NOT_RUN
from rig.process import run_command

TEST = Path(__file__).with_name("test_backend_trains.py")


def test_unsupported_real_nodes_are_reported_as_not_run():
    test = f"{TEST}::test_short_node_disconnection_costs_no_attempt"
    command = (sys.executable, "-m", "pytest", "-qmcluster", test)
    ended = run_command("setpriv", "--bounding-set=-sys_admin", *command)
    assert ended.returncode == NOT_RUN, ended.stdout
    assert "NOT RUN: real nodes need namespaces, and root may make none here" in ended.stdout
