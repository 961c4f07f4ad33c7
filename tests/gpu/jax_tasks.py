"""A task for jax, which adds numbers over all devices of all processes."""

import os

import jax
from flytekit import task
from flytekitplugins.kfpytorch import Elastic, TrainJob


@task(task_config=Elastic(nnodes=2, nproc_per_node=1, train_job=TrainJob(framework="jax")))
def add() -> list[str]:
    """Return the platform, the number of devices and a sum over them."""
    jax.distributed.initialize(
        coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]),
    )
    ones = jax.numpy.ones(jax.local_device_count())
    total = jax.pmap(lambda one: jax.lax.psum(one, "devices"), axis_name="devices")(ones)
    return [jax.devices()[0].platform, str(jax.device_count()), str(float(total[0]))]
