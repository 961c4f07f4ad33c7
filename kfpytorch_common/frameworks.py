"""The frameworks whose processes a TrainJob can start."""

from typing import Final

TORCH: Final = "torch"
JAX: Final = "jax"
FRAMEWORKS: Final = (TORCH, JAX)
