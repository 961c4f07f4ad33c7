"""A Flyte type transformer for `torch.nn.Module`. The import of this module requires torch."""

from typing import Any

import torch
from flytekit import FlyteContext
from flytekit.core.type_engine import TypeEngine
from flytekit.extras.pytorch import PyTorchModuleTransformer
from flytekit.models.literals import Literal


class TrustedModuleTransformer(PyTorchModuleTransformer):  # type: ignore[misc]
    """flytekit's transformer for `torch.nn.Module`, which also loads whole pickled modules, not only weights.

    flytekit saves the whole module, but with torch 2.6 and newer, flytekit's transformer can load only
    weights. Loading a whole module can run code, as with the pickles that flytekit reads for other Python
    types. Modules and pickles come from the storage of the execution.
    """

    def to_python_value(
        self,
        ctx: FlyteContext,
        lv: Literal,
        expected_python_type: type[torch.nn.Module],  # noqa: ARG002
    ) -> torch.nn.Module:
        """Load the module of the Flyte literal `lv`, onto the first GPU if a GPU exists."""
        path = ctx.file_access.get_random_local_path()
        ctx.file_access.get_data(lv.scalar.blob.uri, path, is_multipart=False)
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
        module: Any = torch.load(path, map_location=device, weights_only=False)
        return module  # type: ignore[no-any-return]


def register() -> None:
    """Register `TrustedModuleTransformer` for `torch.nn.Module`, in place of flytekit's own transformer."""
    TypeEngine.register_additional_type(TrustedModuleTransformer(), torch.nn.Module, override=True)
