"""Minimal container images, built as archives and imported into each node without a registry.

A container sees the programs, the interpreter and the repository of this machine, read-only and at the same
paths. `node` mounts them.
"""

import hashlib
import io
import json
import platform
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rig import debian
from rig.tools import tool

MPI = "rn.local/mpi:1"
PAUSE = "rn.local/pause:1"
PYTHON = "rn.local/python:1"
PROBE = "/rig/probe"  # The path of the program `probe` in every image except the sandbox image.
# Without nsswitch.conf, names in /etc/hosts would first be looked up in the cluster's DNS.
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    "sshd:x:100:65534::/run/sshd:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, kw_only=True)
class Image:
    names: Sequence[str]
    files: Mapping[str, bytes | Path]
    links: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()


def pause():
    """Return the sandbox image, which holds the namespaces of a pod."""
    return Image(names=[PAUSE], files={"pause": tool("pause")}, entrypoint=["/pause"])


def python(names=()):
    """Return the image with this interpreter and its environment; `names` are additional names for it."""
    # Debian and similar systems have these paths as links. Where they are folders, they are mounted.
    links = {
        name: f"usr/{name}"
        for name in ("bin", "sbin", "lib", "lib32", "lib64")
        if Path("/", name).is_symlink()
    }
    return Image(
        names=[PYTHON, *names],
        files={**{name: text.encode() for name, text in _FILES.items()}, PROBE[1:]: tool("probe")},
        links=links,
        folders=("rig", "root", "tmp", "usr", "var", "var/tmp"),
        environment={
            "HOME": "/root",
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            # The tasks of these tests, and this repository instead of an installed version.
            "PYTHONPATH": f"{REPOSITORY / 'tests' / 'cluster'}:{REPOSITORY}",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )


def mpi():
    """Return the image `python` with Open MPI, sshd and mpi4py of the distribution."""
    base, unpacked = python(), debian.packages(debian.MPI)
    found = [path for path in (unpacked / "usr").rglob("*") if "doc" not in path.parts]
    home = f"opt/mpi/{unpacked.name}"
    names = {path: f"{home}/{path.relative_to(unpacked)}" for path in found}
    (libraries,) = (unpacked / "usr/lib").glob("*-linux-gnu")
    root = f"/{home}/usr"
    environment = {
        **base.environment,
        "OPAL_PREFIX": root,
        "LD_LIBRARY_PATH": f"{root}/lib/{libraries.name}",
        "PATH": f"{root}/bin:{root}/sbin:{base.environment['PATH']}",
        "PYTHONPATH": f"{base.environment['PYTHONPATH']}:{root}/lib/python3/dist-packages",
    }
    return replace(
        base,
        names=[MPI],
        files={
            **base.files,
            **{name: path for path, name in names.items() if path.is_file() and not path.is_symlink()},
        },
        links={
            **base.links,
            **{name: str(path.readlink()) for path, name in names.items() if path.is_symlink()},
            f"{home}/usr/bin/mpirun": "orterun",
        },
        environment=environment,
    )


def machine():
    """Return the paths of this machine that are mounted into containers."""
    shown = [Path("/usr"), Path("/etc/ld.so.cache"), Path("/etc/ssl"), REPOSITORY]
    shown += [Path("/", name) for name in ("bin", "sbin", "lib", "lib64") if not Path("/", name).is_symlink()]
    shown += [Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve()]
    return [
        each
        for each in dict.fromkeys(shown)
        if each.exists() and not any(other != each and each.is_relative_to(other) for other in shown)
    ]


def archive(image, path):
    """Write the image in the format of `docker save`."""
    layer = _layer(image)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "config": {
            "Env": [f"{name}={value}" for name, value in image.environment.items()],
            "Entrypoint": list(image.entrypoint) or None,
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": list(image.names), "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        _add(tar, f"{digest}/layer.tar", layer)
        _add(tar, "config.json", _encoded(config))
        _add(tar, "manifest.json", _encoded(manifest))
    return path


def _layer(image):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        parents = {str(each) for name in image.files for each in Path(name).parents if each.name}
        for name in sorted({*image.folders, *parents}):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            tar.addfile(folder)
        for name, target in image.links.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        for name, content in image.files.items():
            if isinstance(content, Path):
                _add(tar, name, content.read_bytes(), 0o755)
            else:
                _add(tar, name, content)
    return written.getvalue()


def _add(tar, name, content, mode=0o644):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _encoded(document):
    return json.dumps(document).encode()
