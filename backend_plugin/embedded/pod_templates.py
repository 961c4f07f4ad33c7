"""Reads the PodTemplates of an embedded cluster from files, and selects them by name."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from backend_plugin.core.errors import BackendError
from backend_plugin.core.reading import get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import with_metadata
from backend_plugin.shell import bounded_read, yaml_loader

_KIND: Final = "PodTemplate"
_SUFFIXES: Final = (".yaml", ".yml", ".json")


class UnreadableTemplates(BackendError):
    """A PodTemplate file cannot be read, or contains a value that is not a mapping; see the message."""


def read_templates(place: Path | None) -> Sequence[Manifest]:
    """Return the PodTemplates of a file or a directory; empty if `place` is None.

    Raises:
        UnreadableTemplates: If a file cannot be read.
    """
    if place is None:
        return ()
    files = (
        sorted(each for each in place.iterdir() if each.suffix in _SUFFIXES) if place.is_dir() else [place]
    )
    return [each for file in files for each in _read_file(file)]


def select_templates(
    templates: Sequence[Manifest], namespaces: Sequence[str], name: str
) -> Sequence[Manifest]:
    """Return the PodTemplates with this name in the namespaces.

    A template without a namespace belongs to every namespace.
    """
    return [
        with_metadata(template, namespace=namespace)
        for namespace in namespaces
        for template in templates
        if get_text(template, "metadata", "name") == name
        and get_text(template, "metadata", "namespace") in ("", namespace)
    ]


def _load_documents(file: Path) -> Sequence[object]:
    import yaml  # Import only if templates are used, because it is slow.

    try:
        return [each for each in yaml_loader.load_documents(bounded_read.read_file(file)) if each]
    except OSError as error:
        raise UnreadableTemplates(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableTemplates(f"{file}: {error}") from error


def _read_file(file: Path) -> Sequence[Manifest]:
    found: list[Manifest] = []
    for document in _load_documents(file):
        if not isinstance(document, Mapping):
            raise UnreadableTemplates(f"{file}: contains {type(document).__name__} instead of an object")
        # `kubectl get -o yaml` writes lists.
        found += get_mappings(document, "items") or [document]
    return [each for each in found if each.get("kind") == _KIND]
