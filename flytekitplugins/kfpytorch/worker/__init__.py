"""Code that runs a task: in its pods, or in the processes of a local run."""

from typing import Final

TORCH_IMPORT_ERROR_MESSAGE: Final = "PyTorch is not installed here. Install it with: pip install torch"
