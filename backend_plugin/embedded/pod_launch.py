"""Builds the launch file of a pod, the configuration of the shim that runs its containers. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import pod_env
from backend_plugin.embedded.objects import get_hostname
from backend_plugin.embedded.operators.table import find_pod_operator
from backend_plugin.embedded.options import EmbeddedOptions, HostInfo
from backend_plugin.embedded.pod_env import DeclaredEnvironment
from backend_plugin.embedded.pod_volumes import (
    ContainerConfigError,
    MountPaths,
    build_mounts,
    find_volume_error,
)
from backend_plugin.embedded.shim import layout, lifecycle
from kfpytorch_common.operator_env import build_loopback_env

_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_NO_COMMAND: Final = (
    'failed to generate container "{name}" spec: failed to generate spec: no command specified: images are '
    "not pulled, so a container must set command or args"
)
_NO_IMAGE: Final = (
    'Back-off pulling image "{image}": ErrImagePull: failed to pull and unpack image "{image}": failed to '
    'resolve reference "{image}": {image}: not found: no virtual environment is configured for it'
)


def build_launch(
    pod: Manifest, directory: str, tmpdir: str, options: EmbeddedOptions, machine: HostInfo
) -> Manifest:
    """Return the content of the launch file of a pod that is bound to a node: the configuration of its shim.

    For a container that cannot start, the file has the reason and the message of its waiting state instead of
    a program.
    """
    metadata, spec = get_mapping(pod, "metadata"), get_mapping(pod, "spec")
    name, namespace, uid = (get_text(metadata, key) for key in ("name", "namespace", "uid"))
    volume_error = find_volume_error(pod)
    volumes = [] if volume_error else get_mappings(spec, "volumes")
    mounted = [f"{layout.VOLUMES}/{get_text(each, 'name')}" for each in volumes]
    run = _LaunchContext(
        pod=pod, directory=directory, tmpdir=tmpdir, options=options, machine=machine, error=volume_error
    )
    return {
        "uid": uid,
        "name": name,
        "psutil": machine.psutil,
        "pod": f"{name}_{namespace}({uid})",
        "node": get_text(spec, "nodeName"),
        "grace": get_int(spec, "terminationGracePeriodSeconds"),
        "deadline": get_int(spec, "activeDeadlineSeconds"),
        "back_off": [options.back_off.first, options.back_off.most, options.back_off.forget],
        "directories": [
            tmpdir,
            *(f"{directory}/{each}" for each in (layout.LOGS, layout.WORK, layout.TERMINATION, *mounted)),
        ],
        "containers": [run.build_container(each, kind) for each, kind in _iter_containers(spec)],
    }


def has_gate(pod: Manifest) -> bool:
    """True if the pod has an init container that waits for the leader of its job."""
    gate = find_pod_operator(pod).gate
    return any(get_text(each, "name") == gate for each in get_mappings(pod, "spec", "initContainers"))


def _iter_containers(spec: Manifest) -> Iterator[tuple[Manifest, str]]:
    for each in get_mappings(spec, "initContainers"):
        yield each, lifecycle.SIDECAR if get_text(each, "restartPolicy") == "Always" else lifecycle.INIT
    for each in get_mappings(spec, "containers"):
        yield each, lifecycle.APP


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaunchContext:
    """The data from which the containers in the launch file of a pod are built."""

    pod: Manifest
    directory: str
    tmpdir: str
    options: EmbeddedOptions
    machine: HostInfo
    error: str

    def build_container(self, container: Manifest, kind: str) -> Manifest:
        name = get_text(container, "name")
        gated = kind == lifecycle.INIT and name == find_pod_operator(self.pod).gate
        description: Manifest = {
            "name": name,
            "kind": kind,
            "policy": _get_restart_policy(self.pod, kind),
            "gate": self.options.master_patience if gated else None,
            "blocked": None,
            "termination": self._get_termination_path(name),
            "message_from_log": get_text(container, "terminationMessagePolicy") == "FallbackToLogsOnError",
        }
        if gated:
            return description
        try:
            return {**description, **self._build_program(container)}
        except ContainerConfigError as wrong:
            return {**description, "blocked": ["CreateContainerConfigError", str(wrong)]}

    def _build_program(self, container: Manifest) -> Manifest:
        name = get_text(container, "name")
        if self.error:
            raise ContainerConfigError(self.error)
        image = get_text(container, "image")
        fitting = (venv for pattern, venv in self.options.images.items() if fnmatchcase(image, pattern))
        venv = next(fitting, None if self.options.strict_images else ".")
        if venv is None:
            return {"blocked": ["ImagePullBackOff", _NO_IMAGE.format(image=image)]}
        directories = build_mounts(container, f"{self.directory}/{layout.VOLUMES}")
        message = get_text(container, "terminationMessagePath") or "/dev/termination-log"
        paths = MountPaths.from_directories({**directories, message: self._get_termination_path(name)})
        environment = pod_env.read_environment(self.pod, container, paths, self.machine)
        argv = pod_env.build_command(container, environment)
        cwd = self._find_working_directory(get_text(container, "workingDir"), paths)
        if not argv:
            return {"blocked": ["CreateContainerError", _NO_COMMAND.format(name=name)]}
        return {
            "argv": argv,
            "env": self._build_environment(
                container, environment, self.machine.prefix if venv == "." else venv
            ),
            "cwd": cwd,
            "directories": [
                *directories.values(),
                *([cwd] if cwd and cwd.startswith(self.directory) else []),
            ],
            "memory": pod_env.get_memory_limit(container),
        }

    def _get_termination_path(self, name: str) -> str:
        return f"{self.directory}/{layout.TERMINATION}/{name}"

    def _find_working_directory(self, requested: str, paths: MountPaths) -> str | None:
        """Return the directory on this machine for `requested`, the `workingDir` of a container.

        Only mounts and the code directory exist both in an image and on this machine. For any other path,
        return None: the shim then creates a new directory for each run of the container.
        """
        code = str(self.options.code)
        if ".." in requested.split("/"):
            return None
        if paths.has_path(requested):
            return paths.rewrite(requested)
        return requested if requested == code or requested.startswith(code + "/") else None

    def _build_environment(
        self, container: Manifest, environment: DeclaredEnvironment, venv: str
    ) -> Mapping[str, str]:
        declared = environment.build_variables()
        inherited = self.machine.environment
        variables = {
            **inherited,
            "TMPDIR": self.tmpdir,
            "HOSTNAME": get_hostname(self.pod),
            **build_loopback_env(),
            **declared,
            # Search paths in a manifest refer to the image, so add those of this machine.
            "PATH": _join_paths(f"{venv}/bin", declared.get("PATH") or inherited.get("PATH") or _PATH),
            "PYTHONPATH": _join_paths(declared.get("PYTHONPATH", ""), str(self.options.code)),
        }
        uid = get_text(self.pod, "metadata", "uid")
        return {**variables, layout.MARK: f"{uid}/{get_text(container, 'name')}"}


def _get_restart_policy(pod: Manifest, kind: str) -> str:
    if kind == lifecycle.SIDECAR:
        return "Always"
    policy = get_text(pod, "spec", "restartPolicy")
    return "OnFailure" if kind == lifecycle.INIT and policy == "Always" else policy


def _join_paths(*paths: str) -> str:
    return ":".join(filter(None, paths))
