"""The programs of a cluster, built once from the pinned Go modules in `tests/cluster/tools`.

Each module's programs lie in a folder of the user's cache that is named by what they were built of; nothing
but Go modules is downloaded. ``python -m rig.tools [COMPONENT ...]`` builds them, all if none is named.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parents[1] / "tools"
CACHES: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flytekitplugins-kfpytorch"

# Kueue reads the version of the API server and refuses one that is not stamped.
_VERSION: Final = {
    "gitVersion": "v1.34.7",
    "gitMajor": "1",
    "gitMinor": "34",
    "gitTreeState": "clean",
    "gitCommit": "unknown",
    "buildDate": "1970-01-01T00:00:00Z",
}
_STAMPED: Final = " ".join(
    f"-X k8s.io/component-base/version.{key}={value}" for key, value in _VERSION.items()
)
# Helm believes in Kubernetes 1.20 where it is not stamped, and refuses charts that want a newer one.
_HELM: Final = "helm.sh/helm/v3"
_HELMS: Final = " ".join(
    f"-X {_HELM}/{package}.k8sVersion{part}={_VERSION[f'git{part}']}"
    for package in ("pkg/chartutil", "pkg/lint/rules")
    for part in ("Major", "Minor")
)


class NoGo(Exception):
    """There is no Go compiler on this machine."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """One Go module of ours, and what is built of it."""

    module: str
    """Its folder."""
    programs: Mapping[str, str]
    """Names, with the packages that they are built of."""
    flags: str = "-s -w"
    """For the linker."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> Path:
        return SOURCES / self.module

    @property
    def home(self) -> Path:
        """Where its programs lie, named by all that they come from."""
        digest = hashlib.sha256(repr((self.flags, sorted(self.programs.items()))).encode())
        for path in sorted(self.sources.rglob("*")):
            if path.suffix in {".go", ".mod", ".sum"}:
                digest.update(path.relative_to(self.sources).as_posix().encode() + b"\0" + path.read_bytes())
        return CACHES / "tools" / f"{self.module}-{digest.hexdigest()[:16]}"

    def build(self, program: str) -> Path:
        """The program, built if it is not there; says so, as it may take minutes."""
        built = self.home / program
        if built.exists():
            return built
        go = shutil.which("go")
        if go is None:
            raise NoGo("the programs of a cluster are built with Go 1.26 or newer; put `go` on the PATH")
        print(f"building {program} of {self.sources}", file=sys.stderr, flush=True)
        self.home.mkdir(parents=True, exist_ok=True)
        new = built.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [
                go,
                "build",
                "-mod=readonly",
                "-trimpath",
                f"-ldflags={self.flags}",
                "-o",
                new,
                self.programs[program],
            ],
            cwd=self.sources,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false", **self.environment},
            check=True,
        )
        new.replace(built)
        return built


COMPONENTS: Final[Sequence[Component]] = (
    Component(
        module="kubernetes",
        programs={
            "etcd": "go.etcd.io/etcd/server/v3",
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
            "kube-scheduler": "sigs.k8s.io/scheduler-plugins/cmd/scheduler",
            "kubelet": "k8s.io/kubernetes/cmd/kubelet",
            "pod-group-controller": "sigs.k8s.io/scheduler-plugins/cmd/controller",
        },
        flags=f"-s -w {_STAMPED}",
    ),
    Component(
        module="training-operator",
        programs={"training-operator": "github.com/kubeflow/training-operator/cmd/training-operator.v1"},
    ),
    Component(module="kueue", programs={"kueue": "sigs.k8s.io/kueue/cmd/kueue"}),
    Component(module="yunikorn", programs={"yunikorn": "."}),
    Component(module="kwok", programs={"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Component(module="propeller", programs={"propeller": "."}),
    Component(module="helm", programs={"helm": f"{_HELM}/cmd/helm"}, flags=f"-s -w {_HELMS}"),
    Component(module="coredns", programs={"coredns": "."}),
    Component(module="s3", programs={"versitygw": "github.com/versity/versitygw/cmd/versitygw"}),
    Component(
        module="static",
        programs={"pause": "./pause", "probe": "./probe"},
        environment={"CGO_ENABLED": "0"},
    ),
)


def tool(program: str) -> Path:
    """The path of a program; built in minutes if its sources are new.

    Raises:
        NoGo: If it has to be built and there is no compiler.
    """
    (component,) = (each for each in COMPONENTS if program in each.programs)
    return component.build(program)


@cache
def module_directory(component: str, module: str) -> Path:
    """Where the files of a pinned module lie: its CRDs, its examples; fetched if nothing is built of it."""
    found = subprocess.run(
        ["go", "mod", "download", "-json", module],
        cwd=SOURCES / component,
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return Path(json.loads(found)["Dir"])


def main(names: Sequence[str]) -> None:
    """Build what is named, or all."""
    for component in COMPONENTS:
        if not names or component.module in names:
            for program in component.programs:
                print(component.build(program))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except NoGo as why:
        print(f"NOT RUN: {why}", file=sys.stderr)
        sys.exit(75)
