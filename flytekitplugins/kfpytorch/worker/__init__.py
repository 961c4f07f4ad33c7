"""Code that runs in a replica, in a pod or in a local run."""

from typing import Final

TORCH_IMPORT_ERROR_MESSAGE: Final = "PyTorch is not installed here. Install it with: pip install torch"
