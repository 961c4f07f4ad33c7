"""A secret and variables of the environment, also one that the module sets."""

import os

from flytekit import Secret, current_context, task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather

os.environ["PROGRAM_SET"] = "by the module"


@task(task_config=Elastic(nproc_per_node=2), secret_requests=[Secret(group="team", key="token")])
def train(seed: int) -> list[list[str]]:
    secret = current_context().secrets.get("team", "token")
    return gather([secret, os.environ["PROGRAM_GIVEN"], os.environ["PROGRAM_SET"], str(seed)])
