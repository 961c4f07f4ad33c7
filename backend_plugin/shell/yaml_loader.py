"""A strict and safe YAML reader, which also accepts any JSON."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

_DEEPEST: Final = 500
"""The limit of nesting levels. Kubernetes objects have at most a tenth of this number; the C loader crashes
beyond about 10,000 levels."""
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


def load_documents(data: bytes, *, times: bool = True) -> Sequence[Any]:
    """Return all documents of a YAML stream in any encoding that YAML allows.

    Args:
        data: The stream.
        times: Convert timestamps; if False, they stay strings.

    Raises:
        yaml.YAMLError: If the stream is not YAML, or a mapping has a duplicate key.
        ValueError: If a number, a timestamp or the encoding is invalid.
        RecursionError: If the stream nests more than 500 levels deep.
    """
    with suppress(msgspec.DecodeError):
        # JSON escapes a character beyond U+FFFF as a surrogate pair, which YAML reads as two characters.
        return [msgspec.json.decode(data)]
    import yaml  # Importing yaml is slow, and JSON does not need it.

    # The C loader is ten times as fast where it is available, and it rejects lone surrogates.
    loader = _without_duplicates(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if _may_be_deep(data):
        depth = 0
        for event in yaml.parse(data, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise RecursionError(f"nests more than {_DEEPEST} levels deep")
    try:
        return list(yaml.load_all(data, loader if times else _without_times(loader)))
    except yaml.MarkedYAMLError as error:
        raise yaml.YAMLError(str(error).replace('in "<byte string>", ', "at ")) from error


def _may_be_deep(data: bytes) -> bool:
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
    """Return a loader that rejects duplicate keys; PyYAML silently keeps the last value."""
    import yaml

    def construct_mapping(self: Any, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's.
        known: set[tuple[str, str]] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in known:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is duplicate; remove one of the two", key.start_mark
                )
            known.add((key.tag, key.value))
        return loader.construct_mapping(self, node, deep=deep)

    return type("StrictLoader", (loader,), {"construct_mapping": construct_mapping})
