"""Lightning's Trainer with DistributedDataParallel, in ranks that Lightning did not start."""

import logging
import warnings

import pytorch_lightning
import torch
from flytekit import task
from flytekitplugins.kfpytorch import Elastic
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ranks import gather

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Regression(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch, _index):
        inputs, targets = batch
        return nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> list[list[float]]:
    warnings.simplefilter("ignore")
    pytorch_lightning.seed_everything(seed, verbose=False)
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    trainer = pytorch_lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Regression()
    trainer.fit(model, DataLoader(data, batch_size=4, shuffle=True))
    return gather(
        [float(trainer.global_rank), float(trainer.global_step), *model.layer.weight.flatten().tolist()]
    )
