"""Size limits for the parts of a task, so that one large task cannot block the server."""

from typing import Final

from backend_plugin.core.errors import Problem

CUSTOM_BYTES: Final = 256 * 2**10
"""The size limit of `custom`; this project's plugin writes a few kilobytes."""


def check_size(field: str, size: int, limit: int) -> list[Problem]:
    """Return a problem if the size of a field exceeds `limit`, both in bytes; otherwise an empty list."""
    if size <= limit:
        return []
    return [
        Problem(
            field=field,
            value=f"{size:,} bytes",
            message=f"is larger than the limit of {limit:,} bytes",
            remedy="pass large data as files, or as inputs of the task",
        )
    ]
