"""Dataclasses as input and output."""

from dataclasses import asdict, dataclass, field, replace

from flytekit import task
from flytekitplugins.kfpytorch import Elastic

from ranks import gather, rank


@dataclass
class Inner:
    rate: float = 0.5


@dataclass
class Settings:
    seed: int
    inner: Inner = field(default_factory=Inner)
    names: list[str] = field(default_factory=list)


@task(task_config=Elastic(nproc_per_node=2))
def train(settings: Settings) -> Settings:
    names = gather(f"rank {rank()} of {settings.seed}")
    return replace(settings, inner=Inner(settings.inner.rate / 2), names=names)


def main(seed):
    return train(settings=Settings(seed))


def plain(seed):
    return train.task_function(Settings(seed))


def summary(settings):
    return asdict(settings)
