import subprocess
import sys

import pytest

from backend_plugin.shell import tracing

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
        ({"OTEL_SERVICE_NAME": "x"}, False),
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
