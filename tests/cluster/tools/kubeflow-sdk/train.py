"""Create a TrainJob with the Kubeflow SDK, and print its name and the runtimes as one JSON object.

`python train.py KUBECONFIG NAMESPACE`
"""

import json
import sys

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainer, TrainerClient


def train() -> None:
    """Do nothing; the SDK sends the source of this function."""


def main(kubeconfig: str, namespace: str) -> None:
    client = TrainerClient(KubernetesBackendConfig(config_file=kubeconfig, namespace=namespace))
    runtimes = {
        runtime.name: [
            runtime.kind.value,
            runtime.trainer.framework,
            runtime.trainer.num_nodes,
            runtime.trainer.image,
        ]
        for runtime in client.list_runtimes()
    }
    job = client.train(runtime="torch-distributed", trainer=CustomTrainer(func=train, num_nodes=2))
    print(json.dumps({"job": job, "runtimes": runtimes}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
