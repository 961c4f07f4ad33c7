import asyncio
import io
import json
import logging
import re
import subprocess
import sys
from typing import Any

import pytest

from backend_plugin.core import printable
from backend_plugin.shell import logging_setup, tracing

pytestmark = pytest.mark.usefixtures("restored_logging")
LOG = logging.getLogger("backend_plugin.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def set_up(form: str | None = None, stream: io.StringIO | None = None) -> io.StringIO:
    stream = stream or io.StringIO()
    # Pytest's handlers stay usable after `force` removes them.
    logging_setup.configure_logging("info", form, stream)
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
    LOG.debug("suppressed by the level")
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


ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({ENDPOINT: ""}, False),
        ({ENDPOINT: "http://collector:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4317"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({ENDPOINT: "http://collector:4317", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({ENDPOINT: "http://collector:4317", "OTEL_SDK_DISABLED": "True"}, False),
    ],
)
def test_tracing_is_requested_by_the_opentelemetry_variables(environ: dict[str, str], asked: bool) -> None:
    assert tracing.is_requested(environ) is asked


def test_opentelemetry_is_imported_only_if_tracing_is_requested() -> None:
    program = (
        "import sys; from backend_plugin.shell import tracing\n"
        "with tracing.open_tracing({}) as nothing:\n"
        "    print(nothing, any('opentelemetry' in m for m in sys.modules))\n"
        # As without the package.
        "sys.modules['opentelemetry.exporter'] = None\n"
        "try:\n"
        f"    with tracing.open_tracing({{{ENDPOINT!r}: 'http://x'}}): pass\n"
        "except tracing.TracingUnavailable as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    imported, message = done.stdout.splitlines()
    assert imported == "() False"
    assert 'is not installed; run: pip install "flytekitplugins-kfpytorch[backend,otel]"' in message
