"""A task that returns a file and a directory."""

from pathlib import Path

from flytekit import current_context, task
from flytekit.types.directory import FlyteDirectory
from flytekit.types.file import FlyteFile
from flytekitplugins.kfpytorch import Elastic

from ranks import gather, rank


@task(task_config=Elastic(nproc_per_node=2))
def train(seed: int) -> tuple[FlyteFile, FlyteDirectory]:
    own = Path(current_context().working_directory)
    texts = gather(f"{seed} from rank {rank()}")
    (own / "model.txt").write_text(texts[rank()])
    (own / "checkpoints").mkdir()
    for index, text in enumerate(texts):
        (own / "checkpoints" / f"{index}.txt").write_text(text)
    return FlyteFile(str(own / "model.txt")), FlyteDirectory(str(own / "checkpoints"))


def summary(value):
    file, directory = value
    return [
        Path(file).read_text(),
        {path.name: path.read_text() for path in sorted(Path(directory).iterdir())},
    ]
