from pathlib import Path
from types import SimpleNamespace

import pytest

from flytekitplugins.kfpytorch.error_handling import (
    RECOVERABLE_ERROR_FILE_NAME,
    create_recoverable_error_file,
    is_recoverable_worker_error,
)


def test_recoverable_marker_is_created_next_to_the_error_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = SimpleNamespace(error_file=str(tmp_path / "error.json"))
    assert not is_recoverable_worker_error(failure)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", failure.error_file)
    for _ in range(2):
        create_recoverable_error_file()
    assert (
        [path.name for path in tmp_path.iterdir()] == [RECOVERABLE_ERROR_FILE_NAME] == ["recoverable_error"]
    )
    assert is_recoverable_worker_error(failure)
    # Only a worker of torch has the variable.
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE")
    with pytest.raises(ValueError, match="TORCHELASTIC_ERROR_FILE"):
        create_recoverable_error_file()
