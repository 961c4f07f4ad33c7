"""Helm, our chart and the charts that Flyte publishes."""

import os
import shutil

import yaml

from rig.control_plane import dumped
from rig.images import REPOSITORY
from rig.process import run_command
from rig.tools import module_directory, tool

CHARTS = REPOSITORY / "charts"
CHART = CHARTS / "kfpytorch-backend"
RELEASE = "kfpytorch-backend"
NAMESPACE = "kfpytorch"
NEXT = "next"  # A second tag of the same image, for upgrades.
IMAGES = tuple(
    f"{RELEASE}:{tag}" for tag in (yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"], NEXT)
)
"""The image names under which the nodes have this interpreter and its packages."""
# A template that renders NOTES.txt into an object, because `helm template` does not print the notes.
_NOTES = """
apiVersion: v1
kind: Notes
metadata: {name: notes}
text: {{ include "kfpytorch-backend/templates/NOTES.txt" . | quote }}
"""


class Refused(Exception):
    """Helm has failed; the message is its standard error."""


class Helm:
    """Helm with its own home folder in `folder`; it uses no cluster without a kubeconfig."""

    def __init__(self, folder, kubeconfig=None):
        self._folder = folder
        self._kubeconfig = kubeconfig

    def run(self, *words):
        """Run Helm and return its standard output; raises `Refused` if it fails."""
        home = {f"HELM_{name}_HOME": str(self._folder / "helm") for name in ("CACHE", "CONFIG", "DATA")}
        known = {"KUBECONFIG": str(self._kubeconfig or os.devnull)}
        ended = run_command(tool("helm"), *words, env={**os.environ, **home, **known})
        if ended.returncode != 0:
            raise Refused(ended.stderr)
        return ended.stdout

    def values(self, values):
        """Write the values to a file and return the flags that select it."""
        number = len([*self._folder.glob("values-*.yaml")])
        return "--values", dumped(values, self._folder / f"values-{number}.yaml")

    def rendered(self, values, chart=CHART):
        """Return all objects of a release of our chart, including hooks."""
        output = self.run("template", RELEASE, chart, "--namespace", NAMESPACE, *self.values(values))
        return [_without_chance(each) for each in yaml.safe_load_all(output) if each]

    def notes(self, values):
        copy = self._folder / "with-notes"
        shutil.copytree(CHART, copy, dirs_exist_ok=True)
        (copy / "templates" / "notes.yaml").write_text(_NOTES)
        (text,) = (each["text"] for each in self.rendered(values, copy) if each["kind"] == "Notes")
        return str(text)


def _without_chance(manifest):
    """Return the object with a constant in place of the random key that the chart generates."""
    if manifest["kind"] != "Secret":
        return manifest
    assert [len(key) for key in manifest["data"].values()] == [88], "one key of 64 characters"
    return {**manifest, "data": dict.fromkeys(manifest["data"], "a2V5")}


def fetch_flyte_chart(name, folder):
    """Copy a published chart of Flyte and its dependencies to `folder`, and return its path."""
    source = module_directory("flyte-charts", "github.com/flyteorg/flyte") / "charts"
    chart = folder / name
    for part, place in ((name, chart), ("flyteconnector", chart / "charts" / "flyteconnector")):
        shutil.copytree(source / part, place, dirs_exist_ok=True, copy_function=shutil.copyfile)
        for each in (place, *(path for path in place.rglob("*") if path.is_dir())):
            each.chmod(0o755)  # The files of Go modules are read-only.
    return chart
