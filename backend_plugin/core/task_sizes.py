"""Limits of the sizes of a task's parts, so that no author occupies a server with one task."""

from typing import Final

from backend_plugin.core.errors import Problem

CUSTOM_BYTES: Final = 256 * 2**10
"""The largest `custom` of a task; those of our own plugin have a few kilobytes."""


def check(field: str, size: int, limit: int) -> list[Problem]:
    """Return the problem of a part that is larger than its limit, or nothing."""
    if size <= limit:
        return []
    return [
        Problem(
            field=field,
            value=f"{size:,} bytes",
            message=f"is larger than the limit of {limit:,} bytes",
            remedy="hand over what is large as files, or as inputs of the task",
        )
    ]
