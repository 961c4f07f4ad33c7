"""An S3 store outside the cluster that doctor tests break."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rig.stores import S3

if TYPE_CHECKING:
    from broken_clusters.break_case import BreakCase

Around = Callable[["BreakCase"], contextlib.AbstractContextManager[Mapping[str, Any] | None]]


def s3(bucket: str = "flyte", **environment: str) -> Around:
    """Start an S3 server with an output prefix in `bucket`. `environment` overrides the client settings."""

    @contextlib.contextmanager
    def around(on: "BreakCase") -> Iterator[Mapping[str, Any]]:
        folder = on.folder / "s3"
        folder.mkdir()
        with S3(folder) as store, _environment({**store.environment, **environment}):
            yield {"output_prefixes": [f"s3://{bucket}/metadata"]}

    return around


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
