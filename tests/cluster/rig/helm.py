"""Helm, and the charts: ours, and those that Flyte publishes."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from rig.api import Manifest
from rig.control_plane import dumped
from rig.images import REPOSITORY
from rig.tools import module_directory, tool

CHARTS: Final = REPOSITORY / "charts"
CHART: Final = CHARTS / "kfpytorch-backend"
RELEASE: Final = "kfpytorch-backend"
NAMESPACE: Final = "kfpytorch"
NEXT: Final = "next"
"""The tag of an image that is as good as the chart's own, for an upgrade."""
IMAGES: Final = tuple(
    f"{RELEASE}:{tag}" for tag in (yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"], NEXT)
)
"""By which the nodes know this interpreter, with what is installed in it."""
_FLYTE: Final = "github.com/flyteorg/flyte"
# What the chart says when it is installed is a template that is no manifest.
_NOTES: Final = """
apiVersion: v1
kind: Notes
metadata: {name: notes}
text: {{ include "kfpytorch-backend/templates/NOTES.txt" . | quote }}
"""


class Refused(Exception):
    """Helm has said no; its words."""


class Helm:
    """Helm with a home of its own.

    Args:
        folder: For that, and for the values that are handed over.
        kubeconfig: Of a cluster; without it, it knows of none.
    """

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self._folder = folder
        self._kubeconfig = kubeconfig

    def run(self, *words: str | Path) -> str:
        """What it prints; raises `Refused` if it fails."""
        home = {f"HELM_{name}_HOME": str(self._folder / "helm") for name in ("CACHE", "CONFIG", "DATA")}
        known = {"KUBECONFIG": str(self._kubeconfig or os.devnull)}
        ended = subprocess.run(
            [tool("helm"), *words],
            env={**os.environ, **home, **known},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        if ended.returncode != 0:
            raise Refused(ended.stderr)
        return ended.stdout

    def values(self, values: Mapping[str, Any]) -> Sequence[str | Path]:
        """The flags that hand them over."""
        number = len([*self._folder.glob("values-*.yaml")])
        return "--values", dumped(values, self._folder / f"values-{number}.yaml")

    def rendered(self, values: Mapping[str, Any], chart: Path = CHART) -> Sequence[Manifest]:
        """Every object of a release of our chart, the hooks' too."""
        said = self.run("template", RELEASE, chart, "--namespace", NAMESPACE, *self.values(values))
        return [_without_chance(each) for each in yaml.safe_load_all(said) if each]

    def notes(self, values: Mapping[str, Any]) -> str:
        """What is said at its installation."""
        copy = self._folder / "with-notes"
        shutil.copytree(CHART, copy, dirs_exist_ok=True)
        (copy / "templates" / "notes.yaml").write_text(_NOTES)
        (said,) = (each["text"] for each in self.rendered(values, copy) if each["kind"] == "Notes")
        return str(said)


def _without_chance(manifest: Manifest) -> Manifest:
    """Return an object with a constant in place of a key that the chart makes anew each time."""
    if manifest["kind"] != "Secret":
        return manifest
    assert [len(key) for key in manifest["data"].values()] == [88], "one key of 64 characters"
    return {**manifest, "data": dict.fromkeys(manifest["data"], "a2V5")}


def of_flyte(name: str, folder: Path) -> Path:
    """A chart of Flyte's with what it depends on, as it is published."""
    source = module_directory("flyte-charts", _FLYTE) / "charts"
    chart = folder / name
    for part, place in ((name, chart), ("flyteconnector", chart / "charts" / "flyteconnector")):
        shutil.copytree(source / part, place, dirs_exist_ok=True, copy_function=shutil.copyfile)
        for each in (place, *(path for path in place.rglob("*") if path.is_dir())):
            each.chmod(0o755)  # Modules are read-only.
    return chart
