"""The launch file of a shim, derived from a bound pod. Pure."""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.reading import entries, number, section, text
from backend_plugin.core.values import JsonValue, Manifest
from backend_plugin.embedded import pod_env
from backend_plugin.embedded.kubelet_options import KubeletOptions, Machine
from backend_plugin.embedded.pod_env import Declared
from backend_plugin.embedded.pod_volumes import DNS_LABEL, Paths, Unconfigured, mounts, volume_names
from backend_plugin.embedded.shim import layout, lifecycle
from kfpytorch_common.environment import on_one_machine

GATE: Final = "init-pytorch"
"""The operator's init container that waits until the master is reachable. Here it waits until it is ready."""

_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_PULL_SECONDS: Final = 10
"""Seconds for which ErrImagePull is reported before ImagePullBackOff."""
_NO_COMMAND: Final = (
    'failed to generate container "{name}" spec: failed to generate spec: no command specified: images are '
    "not pulled, so a container must set command or args"
)


@dataclass(frozen=True, slots=True)
class Place:
    """The paths of a pod on this machine."""

    directory: str
    temporary: str
    """The TMPDIR. Its path must be short, because programs create sockets in it."""


def launch(pod: Manifest, place: Place, options: KubeletOptions, machine: Machine) -> Manifest:
    """Return the launch file of a pod.

    A container that cannot run because of its manifest waits with a reason and a message.
    """
    metadata, spec = section(pod, "metadata"), section(pod, "spec")
    name, namespace, uid = (text(metadata, key) for key in ("name", "namespace", "uid"))
    try:
        volumes, trouble = volume_names(pod), ""
    except Unconfigured as wrong:
        volumes, trouble = (), str(wrong)
    run = _Run(pod=pod, place=place, options=options, machine=machine, trouble=trouble)
    grace = number(spec, "terminationGracePeriodSeconds")
    return {
        "uid": uid,
        "name": name,
        "psutil": machine.psutil,
        "pod": f"{name}_{namespace}({uid})",
        "node": text(spec, "nodeName"),
        "grace": 30 if grace is None else max(0, grace),
        "open_files": options.open_files,
        "deadline": number(spec, "activeDeadlineSeconds"),
        "back_off": [options.back_off.first, options.back_off.most, options.back_off.forget],
        "directories": [
            place.temporary,
            *(f"{place.directory}/{each}" for each in (layout.LOGS, layout.WORK, layout.TERMINATION)),
            *(f"{place.directory}/{layout.VOLUMES}/{each}" for each in volumes),
        ],
        "containers": [run.container(each, kind) for each, kind in _containers(spec)],
    }


def gates(pod: Manifest) -> bool:
    """True if the pod waits for the master of its job."""
    return any(text(each, "name") == GATE for each in entries(section(pod, "spec"), "initContainers"))


def _containers(spec: Manifest) -> Iterator[tuple[Manifest, str]]:
    for each in entries(spec, "initContainers"):
        yield each, lifecycle.SIDECAR if text(each, "restartPolicy") == "Always" else lifecycle.INIT
    for each in entries(spec, "containers"):
        yield each, lifecycle.APP


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The values that all containers of a pod share."""

    pod: Manifest
    place: Place
    options: KubeletOptions
    machine: Machine
    trouble: str

    def container(self, container: Manifest, kind: str) -> Manifest:
        name = text(container, "name")
        gated = kind == lifecycle.INIT and name == GATE
        said: Manifest = {
            "name": name,
            "kind": kind,
            "policy": _policy(self.pod, kind),
            "gate": self.options.master_patience if gated else None,
            "blocked": [],
            "nice": self.options.nice,
            "log": [self.options.logs.segment_bytes, self.options.logs.segments],
            "termination": self._termination(name),
            "message_from_log": text(container, "terminationMessagePolicy") == "FallbackToLogsOnError",
        }
        if gated:
            return said
        try:
            return {**said, **self._program(container)}
        except Unconfigured as wrong:
            return {**said, "blocked": [[0, "CreateContainerConfigError", str(wrong)]]}

    def _program(self, container: Manifest) -> Manifest:
        name = text(container, "name")
        if self.trouble or not DNS_LABEL.fullmatch(name):
            raise Unconfigured(self.trouble or f'container name "{name}" is not a DNS label')
        image = text(container, "image")
        venv = environment_of(image, self.options)
        if venv is None:
            return {"blocked": _unpullable(image)}
        directories = mounts(container, f"{self.place.directory}/{layout.VOLUMES}")
        message = text(container, "terminationMessagePath") or "/dev/termination-log"
        paths = Paths.of({**directories, message: self._termination(name)})
        said = pod_env.declared(self.pod, container, paths, self.machine)
        argv = pod_env.command(container, said)
        cwd = self._directory(text(container, "workingDir"), paths)
        if not argv:
            return {"blocked": [[0, "CreateContainerError", _NO_COMMAND.format(name=name)]]}
        return {
            "argv": argv,
            "env": self._environment(container, said, self.machine.prefix if venv == "." else venv),
            "cwd": cwd,
            "directories": [
                *directories.values(),
                *([cwd] if cwd and cwd.startswith(self.place.directory) else []),
            ],
            "memory": pod_env.memory_limit(container),
        }

    def _termination(self, name: str) -> str:
        return f"{self.place.directory}/{layout.TERMINATION}/{name}"

    def _directory(self, asked: str, paths: Paths) -> str | None:
        """Return the working directory if it exists on this machine, else None.

        Only mounts and the code directory exist both in an image and on this machine.
        """
        code = str(self.options.code)
        if ".." in asked.split("/"):
            return None
        if paths.knows(asked):
            return paths.rewrite(asked)
        return asked if asked == code or asked.startswith(code + "/") else None

    def _environment(self, container: Manifest, said: Declared, venv: str) -> Mapping[str, str]:
        given = said.environment()
        inherited = self.machine.environment
        found = {
            **inherited,
            "TMPDIR": self.place.temporary,
            "HOSTNAME": text(section(self.pod, "metadata"), "name"),
            **on_one_machine(self.machine.loopback),
            **given,
            # Search paths in a manifest refer to the image, so add those of this machine.
            "PATH": _joined(f"{venv}/bin", given.get("PATH") or inherited.get("PATH") or _PATH),
            "PYTHONPATH": _joined(given.get("PYTHONPATH", ""), str(self.options.code)),
        }
        uid = text(section(self.pod, "metadata"), "uid")
        return {**found, layout.MARK: f"{uid}/{text(container, 'name')}"}


def _policy(pod: Manifest, kind: str) -> str:
    """Return the restart policy of a container of this kind."""
    if kind == lifecycle.SIDECAR:
        return "Always"
    said = text(section(pod, "spec"), "restartPolicy") or "Always"
    return "OnFailure" if kind == lifecycle.INIT and said == "Always" else said


def environment_of(image: str, options: KubeletOptions) -> str | None:
    """Return the virtual environment for an image, or None if the image cannot be pulled."""
    fitting = (venv for pattern, venv in options.images.items() if fnmatch.fnmatchcase(image, pattern))
    return next(fitting, None if options.strict_images else ".")


def _unpullable(image: str) -> Sequence[JsonValue]:
    why = (
        f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: not '
        "found: no virtual environment is configured for it"
    )
    return [
        [0, "ErrImagePull", why],
        [_PULL_SECONDS, "ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {why}'],
    ]


def _joined(*paths: str) -> str:
    return ":".join(filter(None, paths))
