import asyncio
import io
import json
import logging
import re
from typing import Any

import pytest

from backend_plugin.core import printable
from backend_plugin.shell import logging_setup

pytestmark = pytest.mark.usefixtures("restored_logging")
LOG = logging.getLogger("backend_plugin.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def set_up(form: str | None = None, stream: io.StringIO | None = None, level: str = "info") -> io.StringIO:
    stream = stream or io.StringIO()
    # Pytest's handlers stay usable after `force` removes them.
    logging_setup.configure_logging(level, form, stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_log_fields_apply_within_the_context_and_in_its_tasks() -> None:
    stream = set_up()

    async def log_lines() -> None:
        with logging_setup.add_log_fields(execution="f1"):
            with logging_setup.add_log_fields(job="j1"):
                inner = asyncio.create_task(elsewhere())
            LOG.info("outer", extra={"execution": "other"})
            LOG.info("outer")
        await inner
        LOG.info("after")

    async def elsewhere() -> None:
        LOG.info("inner")

    asyncio.run(log_lines())
    records = [line for line in lines(stream) if line["logger"] == LOG.name]
    assert [(line["message"], line.get("execution"), line.get("job")) for line in records] == [
        ("outer", "other", None),
        ("outer", "f1", None),
        ("inner", "f1", "j1"),
        ("after", None, None),
    ]


def test_text_log_line_is_short_and_contains_the_fields_and_a_terminal_has_colours() -> None:
    stream = set_up("text")
    LOG.info("started", extra={"execution": "f1", "project": "p"})
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO    started  execution=f1 project=p\n", stream.getvalue())
    stream = set_up(stream=Terminal())
    LOG.error("broken")
    assert re.fullmatch(r"\d\d:\d\d:\d\d \x1b\[31mERROR  \x1b\[0m broken\n", stream.getvalue())


EVIL = "a\x1b[2Jb\x9bc\rd \u202egnp.exe\u202c \u2028next\x00"


@pytest.mark.parametrize("form", logging_setup.FORMS)
def test_control_characters_in_names_are_escaped_and_a_traceback_is_logged(form: str) -> None:
    stream = set_up(form)
    LOG.info("from %s", EVIL, extra={"job": f"x\n{EVIL}"})
    written = stream.getvalue()
    assert len(written.splitlines()) == 1
    assert printable.escape(written) == written
    if form == "json":
        assert json.loads(written)["message"] == f"from {EVIL}"
    else:
        assert written.count(printable.escape(EVIL)) == 2
    try:
        int("deep")
    except ValueError:
        LOG.exception("it broke")
    assert "it broke" in stream.getvalue()
    assert "ValueError: invalid literal" in stream.getvalue()


def test_log_level_suppresses_lower_records() -> None:
    stream = set_up(level="warning")
    LOG.info("quiet")
    LOG.warning("loud")
    assert [line["message"] for line in lines(stream)] == ["loud"]
