"""Logging that the module configures."""

import logging

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather

logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(message)s", force=True)
logging.getLogger("quiet").setLevel(logging.CRITICAL)


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[list[int]]:
    loggers = (logging.getLogger(), logging.getLogger("quiet"), logging.getLogger("mine"))
    return gather([seed, *(logger.getEffectiveLevel() for logger in loggers)])
