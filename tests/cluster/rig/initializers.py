"""The images of Trainer's initializers: its own programs, and its version of OpenDAL, a client of S3."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from backend_plugin.core.settings.model import PluginSettings
from rig import environments, images, trainer
from rig.images import Image
from rig.real_cluster import RealCluster

_APP: Final = "app"


def load_images(cluster: RealCluster) -> None:
    """Load both images into all nodes."""
    for kind, name in PluginSettings().initializer_images.items():
        cluster.load_image(_build_image(kind, name))


def _build_image(kind: str, name: str) -> Image:
    """Return the image of one initializer, with this interpreter and the paths of Trainer's image."""
    python = images.python()
    return replace(
        python,
        names=[name],
        files={**python.files, **dict(_list_files())},
        environment={**python.environment, "PYTHONPATH": f"/{_APP}"},
        entrypoint=["python", "-m", f"pkg.initializers.{kind}"],
    )


def _list_files() -> Iterator[tuple[str, Path]]:
    module = trainer.find_sources()
    roots = {module: module / "pkg/initializers"}
    packages = environments.find_packages("initializers")
    roots[packages] = packages
    for root, folder in roots.items():
        for file in sorted(folder.rglob("*")):
            if file.suffix in {".py", ".so"}:
                yield f"{_APP}/{file.relative_to(root)}", file
