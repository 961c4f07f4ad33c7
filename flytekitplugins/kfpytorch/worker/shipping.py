"""Getting the user's function into another process: packed with cloudpickle, or a clear refusal."""

from typing import Any

from flytekitplugins.kfpytorch.worker.replica import Payload


class CannotShip(TypeError):
    """The function, or something that it uses, cannot be sent to another process."""


def payload_of(task: Any, inputs: dict[str, Any]) -> Payload:
    """What every worker of this run needs."""
    import flytekit

    context = flytekit.current_context()
    try:
        checkpoint = context.checkpoint
    except NotImplementedError:  # flytekit's word for a context without one.
        checkpoint = None
    return Payload(
        function=task.task_function,
        inputs=inputs,
        raw_output_prefix=context.raw_output_prefix,
        checkpoint_dest=checkpoint._checkpoint_dest if checkpoint else None,  # noqa: SLF001 - there is no other way.
        checkpoint_src=checkpoint._checkpoint_src if checkpoint else None,  # noqa: SLF001
    )


def packed(payload: Payload, task: str) -> bytes:
    """`payload` as bytes.

    Raises:
        CannotShip: It cannot be pickled; the message names the value that stands in the way.
    """
    from flytekitplugins.kfpytorch.worker import pickling

    try:
        return pickling.dumps(payload)
    except Exception as error:
        raise CannotShip(
            f"{task} cannot be sent to its worker processes: {_culprit(payload)}{error}. "
            'Make it inside the function, or use start_method="fork"'
        ) from error


def _culprit(payload: Payload) -> str:
    """The first value that cannot be pickled by itself: an input, or what the function refers to."""
    function = payload.function
    code = getattr(function, "__code__", None)
    found: dict[str, Any] = {f"the input {name!r}": value for name, value in payload.inputs.items()}
    if code is not None:
        cells = zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False)
        found |= {f"the variable {name!r} around it": _content(cell) for name, cell in cells}
        names = function.__globals__
        found |= {f"the global {name!r}": names[name] for name in code.co_names if name in names}
    for where, value in found.items():
        if not _packs(value):
            return f"{where} is a {type(value).__name__}: "
    return ""


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # Not yet assigned.
        return None


def _packs(value: Any) -> bool:
    from flytekitplugins.kfpytorch.worker import pickling

    try:
        pickling.dumps(value)
    except Exception:  # noqa: BLE001 - a user's object may raise anything when pickled.
        return False
    return True
