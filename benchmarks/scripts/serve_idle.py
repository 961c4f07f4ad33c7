"""Measure the startup time and the memory of an idle server.

``python benchmarks/scripts/serve_idle.py embedded|kubernetes``: the last line is JSON with
the seconds until the server is ready and its memory in MiB.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import psutil
from grpc_health.v1 import health_pb2

from backend_plugin.shell import server_file
from benchmarks.scripts.empty_api_server import serve

PATIENCE = 60.0
# Long enough for the work that a server does once at start.
SETTLED = 3.0


def main() -> None:
    cluster = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as kubeconfig:
        state = Path(folder) / "state"
        state.mkdir()
        program = Path(sys.executable).with_name("kfpytorch")
        command = [str(program), "serve", "--cluster", cluster, "--port", "0", "--state-dir", str(state)]
        if cluster == "kubernetes":
            command += ["--host", "127.0.0.1", "--kubeconfig", str(kubeconfig)]
        began = time.perf_counter()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            while not is_ready(state):
                assert time.perf_counter() - began < PATIENCE, "the server never became ready"
                time.sleep(0.01)
            seconds = time.perf_counter() - began
            time.sleep(SETTLED)
            resident = psutil.Process(process.pid).memory_info().rss / 2**20
        finally:
            process.terminate()
            process.wait()
    print(json.dumps({"seconds": seconds, "resident": resident}))


def is_ready(state: Path) -> bool:
    server = server_file.read(state)
    if server is None:
        return False
    with grpc.insecure_channel(server.endpoint) as channel:
        ask = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        status = ask(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=PATIENCE).status
        return bool(status == health_pb2.HealthCheckResponse.SERVING)


if __name__ == "__main__":
    main()
