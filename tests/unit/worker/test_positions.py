from pathlib import Path

from flytekitplugins.kfpytorch.worker import failure_file
from flytekitplugins.kfpytorch.worker.positions import RankPositions


def test_ranks_without_a_position_are_listed_after_the_others(tmp_path: Path) -> None:
    positions = RankPositions(tmp_path)
    for rank in range(5):
        directory = tmp_path / str(rank)
        directory.mkdir()
        positions.set_rank(slot=rank, rank=rank, directory=directory)
    for rank in (1, 3):
        failure_file.write_exit(tmp_path / str(rank), failure_file.WorkerIdentity("worker-0", rank, None))
    stack = 'Stack (most recent call first):\n  File "/home/me/train.py", line 9 in train\n'
    (tmp_path / "4" / failure_file.STACK_FILE_NAME).write_text(stack)
    shown = positions.describe()
    positions.close()
    assert shown == [
        "rank 4 at /home/me/train.py:9 in train",
        "rank 1 has ended",
        "rank 3 has ended",
        "rank 0 does not answer",
        "rank 2 does not answer",
    ]
