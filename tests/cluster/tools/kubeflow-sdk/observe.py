"""Print what `TrainerClient` returns for the jobs of a namespace, one JSON object per line.

The first line is from `list_jobs`, the second from `get_job`, and the third from `wait_for_job_status`.
`python observe.py KUBECONFIG NAMESPACE`
"""

import json
import sys

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import TrainerClient


def main(kubeconfig, namespace):
    client = TrainerClient(KubernetesBackendConfig(config_file=kubeconfig, namespace=namespace))
    listed = client.list_jobs()
    print_jobs(listed)
    print_jobs([client.get_job(job.name) for job in listed])
    print_jobs([client.wait_for_job_status(job.name) for job in listed])


def print_jobs(jobs):
    """Print the status, the nodes, the runtime and the steps of each job."""
    shown = {
        job.name: {
            "status": job.status,
            "nodes": job.num_nodes,
            "runtime": job.runtime.name,
            "steps": {step.name: step.status for step in job.steps},
        }
        for job in jobs
    }
    print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
