"""The Kubeflow SDK in its own environment, because it excludes the Kubernetes client of this project."""

from pathlib import Path
from typing import Final

from rig import environments
from rig.tools import SOURCES

PROGRAM: Final = SOURCES / "kubeflow-sdk/observe.py"
"""The program that observes TrainJobs with the SDK."""
TRAIN: Final = SOURCES / "kubeflow-sdk/train.py"
"""The program that creates a TrainJob with the SDK, and lists the runtimes."""


def python() -> Path:
    """Return the interpreter of the environment."""
    return environments.install("kubeflow-sdk") / "bin/python"
