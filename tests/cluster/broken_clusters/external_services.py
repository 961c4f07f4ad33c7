"""An S3 store outside the cluster that doctor tests break."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from rig.stores import S3

if TYPE_CHECKING:
    from broken_clusters.break_case import BreakCase


def s3(**environment: str) -> Callable[["BreakCase"], contextlib.AbstractContextManager[Mapping[str, Any]]]:
    """Start an S3 server for the outputs. `environment` overrides the client settings."""

    @contextlib.contextmanager
    def around(on: "BreakCase") -> Iterator[Mapping[str, Any]]:
        folder = on.folder / "s3"
        folder.mkdir()
        with S3(folder) as store, pytest.MonkeyPatch.context() as patch:
            for name, value in {**store.environment, **environment}.items():
                patch.setenv(name, value)
            yield {"output_prefixes": [f"{store.uri}/metadata"]}

    return around
