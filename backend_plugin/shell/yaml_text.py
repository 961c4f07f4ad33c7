"""YAML as people and programs write it, and JSON, which nearly is YAML.

Lives here: that all of it can be sent on, and that nothing crashes. Does not: files.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

_DEEPEST: Final = 500
"""Kubernetes' own objects nest to a tenth of it. The C loader would crash somewhere beyond 10,000."""
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


def documents(data: bytes, *, times: bool = True) -> Sequence[Any]:
    """All documents, in any encoding of YAML; without `times` these stay as they are written.

    Raises:
        yaml.YAMLError: If it is none, or has a key twice in one mapping.
        ValueError: If a number, a time or an encoding is none.
        RecursionError: If it is too deep.
    """
    try:
        # In YAML an escaped character beyond the first plane, as JSON has it, is two halves.
        return [msgspec.json.decode(data)]
    except msgspec.DecodeError:
        pass
    import yaml  # Whoever reads none does not pay for it.

    # The C loader, where there is one, is ten times as fast, and refuses half a character.
    loader = _without_duplicates(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if _may_be_deep(data):
        depth = 0
        for event in yaml.parse(data, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise RecursionError(f"nests more than {_DEEPEST} levels deep")
    return list(yaml.load_all(data, loader if times else _without_times(loader)))


def _may_be_deep(data: bytes) -> bool:
    """Each level takes a bracket, or half a column."""
    return (
        data.count(b"[") + data.count(b"{") > _DEEPEST
        or max(map(len, data.splitlines()), default=0) > _DEEPEST
    )


def _without_times(loader: Any) -> Any:
    implicit = {
        first: [(tag, pattern) for tag, pattern in known if tag != _TIMESTAMP]
        for first, known in loader.yaml_implicit_resolvers.items()
    }
    return type("TextLoader", (loader,), {"yaml_implicit_resolvers": implicit})


def _without_duplicates(loader: Any) -> Any:
    """Return a loader that refuses a second value for a key; YAML's own takes the last one silently."""
    import yaml

    def construct_mapping(self: Any, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's.
        known: set[tuple[str, str]] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in known:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice; remove one of the two", key.start_mark
                )
            known.add((key.tag, key.value))
        return loader.construct_mapping(self, node, deep=deep)

    return type("StrictLoader", (loader,), {"construct_mapping": construct_mapping})
