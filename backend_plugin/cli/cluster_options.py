"""Options of the commands that connect to a Kubernetes cluster, and their conversion to settings."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import rich_click as click

Command = TypeVar("Command", bound=Callable[..., Any])

KEYS: Final = {"kubeconfig": "kubernetes.kubeconfig", "context": "kubernetes.context"}
"""The key of the server setting that each option sets."""
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def add_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds these options to a command, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def connection_options(where: str = "") -> Callable[[Command], Command]:
    """Return a decorator that adds ``--kubeconfig`` and ``--context``; `where` is a prefix of their help."""
    return add_options(
        click.option(
            "--kubeconfig",
            metavar="FILE",
            help=f"{where}Kubeconfig. Default: the pod's service account, or kubectl's kubeconfig.",
        ),
        click.option(
            "--context", metavar="NAME", help="Context of the kubeconfig. Default: its current context."
        ),
    )


def settings_option(of: str) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--settings``; `of` lists the sections that the command reads."""
    return click.option(
        "--settings",
        "-s",
        metavar="FILE",
        envvar="KFPYTORCH_SETTINGS",
        help=f"YAML with a server's settings; read are the sections {of}. Default: KFPYTORCH_SETTINGS.",
    )


def place_options(namespace_default: str) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--project``, ``--domain`` and ``--namespace``.

    `namespace_default` describes the default namespace in the help text.
    """
    return add_options(
        click.option("--project", metavar="NAME", help="Flyte's project of the task. Default: project."),
        click.option("--domain", metavar="NAME", help="Flyte's domain of the task. Default: development."),
        click.option(
            "--namespace",
            "-n",
            metavar="NAME",
            callback=parse_namespace,
            help=f"The namespace of the job. Default: {namespace_default}.",
        ),
    )


def read_place(options: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the values of ``--project``, ``--domain`` and ``--namespace`` that are set, by option name."""
    return {key: options[key] for key in ("project", "domain", "namespace") if options[key]}


def build_flags(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings, by key, for a Kubernetes cluster: the values of ``--kubeconfig`` and ``--context``."""
    return {"cluster": "kubernetes", **{key: options[name] for name, key in KEYS.items()}}


def is_pattern(name: str) -> bool:
    """True if a namespace or output prefix contains a wildcard: ``*``, ``?`` or ``[``."""
    return any(character in name for character in "*?[")


def parse_namespace(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Validate ``--namespace`` as a callback of `click.option`, and return it; None stays None.

    Raises:
        BadParameter: If the name is invalid.
    """
    if value is not None and not _NAMESPACE.fullmatch(value):
        raise click.BadParameter(
            f"{value!r} is not a valid namespace name, which has at most 63 lower-case letters, digits "
            "and '-', and begins and ends with a letter or digit"
        )
    return value


def parse_namespaces(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Validate namespaces as a callback of `click.option`, and return them.

    Raises:
        BadParameter: If a namespace is neither a valid name nor a pattern.
    """
    for each in values:
        if not is_pattern(each):
            parse_namespace(context, parameter, each)
    return values
