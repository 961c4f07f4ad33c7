"""The programs of a cluster, built once from the pinned Go modules in `tests/cluster/tools`.

The programs of each module are cached in a user folder whose name has the hash of its sources. Only Go
modules are downloaded. `python -m rig.tools [COMPONENT ...]` builds the named components, or all.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "tools"
CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flytekitplugins-kfpytorch"

# Kueue rejects an API server whose version is not set at link time.
_VERSION = {
    "gitVersion": "v1.34.7",
    "gitMajor": "1",
    "gitMinor": "34",
    "gitTreeState": "clean",
    "gitCommit": "unknown",
    "buildDate": "1970-01-01T00:00:00Z",
}
_STAMPED = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in _VERSION.items())
# Without a version set at link time, Helm assumes Kubernetes 1.20 and rejects charts for newer versions.
_HELM = "helm.sh/helm/v3"
_HELMS = " ".join(
    f"-X {_HELM}/{package}.k8sVersion{part}={_VERSION[f'git{part}']}"
    for package in ("pkg/chartutil", "pkg/lint/rules")
    for part in ("Major", "Minor")
)


class NoGo(Exception):
    """Raised if no Go compiler is installed on this machine."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """A Go module in `tests/cluster/tools`, and the programs that are built from it."""

    module: str  # The folder of the module.
    programs: Mapping[str, str]  # The package of each program.
    flags: str = "-s -w"  # The flags of the linker.
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> Path:
        return SOURCES / self.module

    @property
    def home(self) -> Path:
        """The cache folder of the programs; its name has the hash of all sources."""
        digest = hashlib.sha256(repr((self.flags, sorted(self.programs.items()))).encode())
        for path in sorted(self.sources.rglob("*")):
            if path.suffix in {".go", ".mod", ".sum"}:
                digest.update(path.relative_to(self.sources).as_posix().encode() + b"\0" + path.read_bytes())
        return CACHES / "tools" / f"{self.module}-{digest.hexdigest()[:16]}"

    def build(self, program: str) -> Path:
        """Return the path of a program. If necessary, build it with a message, because this takes minutes."""
        built = self.home / program
        if built.exists():
            return built
        go = shutil.which("go")
        if go is None:
            raise NoGo("the programs of a cluster are built with Go 1.26 or newer; put `go` on the PATH")
        print(f"building {program} of {self.sources}", file=sys.stderr, flush=True)
        self.home.mkdir(parents=True, exist_ok=True)
        new = built.with_suffix(f".{os.getpid()}")
        flags = ("-mod=readonly", "-trimpath", f"-ldflags={self.flags}")
        subprocess.run(
            [go, "build", *flags, "-o", new, self.programs[program]],
            cwd=self.sources,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false", **self.environment},
            check=True,
        )
        new.replace(built)
        return built


COMPONENTS = (
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
    Component(
        module="trainer",
        programs={"trainer": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"},
    ),
    Component(module="jobset", programs={"jobset": "sigs.k8s.io/jobset"}),
    Component(module="kueue", programs={"kueue": "sigs.k8s.io/kueue/cmd/kueue"}),
    Component(module="kueue-0.19", programs={"kueue-0.19": "sigs.k8s.io/kueue/cmd/kueue"}),
    Component(module="yunikorn", programs={"yunikorn": "."}),
    Component(module="kwok", programs={"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Component(module="propeller", programs={"propeller": "."}),
    Component(module="helm", programs={"helm": f"{_HELM}/cmd/helm"}, flags=f"-s -w {_HELMS}"),
    Component(module="coredns", programs={"coredns": "."}),
    Component(module="s3", programs={"versitygw": "github.com/versity/versitygw/cmd/versitygw"}),
    Component(
        module="static", programs={"pause": "./pause", "probe": "./probe"}, environment={"CGO_ENABLED": "0"}
    ),
)


def tool(program: str) -> Path:
    """Return the path of a program; build it if its sources have changed.

    Raises:
        NoGo: If it must be built and no compiler is installed.
    """
    (component,) = (each for each in COMPONENTS if program in each.programs)
    return component.build(program)


@contextlib.contextmanager
def cached_folder(home: Path) -> Iterator[Path]:
    """Yield the path of a folder to create, which becomes `home`.

    It is renamed when it is complete, so that an interrupted or concurrent call leaves no partial folder.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        made = Path(scratch) / "made"
        yield made
        try:
            made.rename(home)
        except OSError:
            if not home.exists():
                raise


@cache
def module_directory(component: str, module: str) -> Path:
    """Return the folder of a pinned module, for example for its CRDs; download it if necessary."""
    found = subprocess.run(
        ["go", "mod", "download", "-json", module],
        cwd=SOURCES / component,
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return Path(json.loads(found)["Dir"])


@cache
def install_packages(tool: str) -> Path:
    """Return the environment with the locked packages of a tool; make it if the lock has changed."""
    lock = SOURCES / tool / "requirements.lock"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    home = CACHES / tool / digest[:16]
    if not home.exists():
        with cached_folder(home) as made:
            python = str(made / "bin/python")
            _run_uv("venv", "--relocatable", "--python", sys.executable, str(made))
            _run_uv("pip", "sync", "--python", python, "--compile-bytecode", "--require-hashes", str(lock))
    return home


def find_packages(tool: str) -> Path:
    (folder,) = install_packages(tool).glob("lib/python*/site-packages")
    return folder


def _run_uv(*words: str) -> None:
    subprocess.run([Path(sys.executable).with_name("uv"), "--quiet", *words], check=True, timeout=600)


def main(names: Sequence[str]) -> None:
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
