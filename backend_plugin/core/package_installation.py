"""The command that installs packages in a pod before the task starts, and its failures.

`PROGRAM` installs the packages in a directory of the pod, because the site-packages of an image may not be
writable. It also extends PYTHONPATH, because a variable in the manifest would replace the value of the image.
It is passed as an argument, so that it runs in any image with Python and pip, without another container.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from backend_plugin.core.errors import InvalidTask, Problem
from backend_plugin.core.protojson import build_problem
from backend_plugin.core.reading import get_texts
from backend_plugin.core.values import Manifest

EXIT_CODE: Final = 78
"""The exit code of a failed installation, EX_CONFIG of sysexits.h."""
_FAILED: Final = "packages cannot be installed: "
_PREFIX: Final = f"kfpytorch: {_FAILED}"

# `pip install --target` alone would install dependencies again that the image has, such as torch. So the
# first run of pip lists what is missing. The empty working directory keeps modules of the task out of pip.
PROGRAM: Final = f"""\
import json, os, pathlib, signal, subprocess, sys, tempfile

def fail(reason):
    print("{_PREFIX}" + reason, file=sys.stderr, flush=True)
    try:
        with open("/dev/termination-log", "r+") as log:
            log.write("{_PREFIX}" + reason)
    except OSError:
        pass
    sys.exit({EXIT_CODE})

def pip(*words):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    last, pipe = "", subprocess.PIPE
    with subprocess.Popen([*command, *words], stdout=pipe, stderr=subprocess.STDOUT, cwd=base, text=True,
                          errors="replace") as run:
        for line in run.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            if line.strip() and (line.lower().startswith("error") or not last.lower().startswith("error")):
                last = line.strip()
    if run.returncode:
        fail(last or "pip ended with status " + str(run.returncode))

def pin(found):
    name, origin = found["metadata"]["name"], found["download_info"]
    if not found["is_direct"]:
        return name + "==" + found["metadata"]["version"]
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return name + " @ " + vcs["vcs"] + "+" + origin["url"] + "@" + vcs["commit_id"]
    return name + " @ " + origin["url"]

# The first process of a container ignores SIGTERM by default.
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
packages, command = json.loads(sys.argv[1]), sys.argv[2:]
try:
    base = tempfile.mkdtemp(prefix="kfpytorch-")
    target, report = base + "/packages", pathlib.Path(base, "report.json")
    pip("--quiet", "--dry-run", "--report", str(report), "--", *packages)
    pins = [pin(each) for each in json.loads(report.read_text())["install"]]
    if pins:
        pip("--no-deps", "--target", target, "--", *pins)
except OSError as error:
    fail(str(error))
for name, folder in (("PYTHONPATH", target), ("PATH", target + "/bin")):
    os.environ[name] = os.pathsep.join(filter(None, [folder, os.environ.get(name)]))
try:
    os.execvp(command[0], command)
except OSError as error:
    print(command[0] + ": " + str(error), file=sys.stderr)
    sys.exit(127)
"""


def check_packages(packages: Sequence[str], path: str) -> Iterator[Problem]:
    """Yield a problem for each package that is not a valid requirement of pip."""
    for index, package in enumerate(packages):
        try:
            Requirement(package)
        except InvalidRequirement as error:
            message = f"is not a requirement: {str(error).partition(chr(10))[0]}"
            remedy = 'write a name with an optional version, such as "einops>=0.8"'
            yield build_problem(f"{path}[{index}]", package, message, remedy)


def with_packages(container: Manifest, packages: Sequence[str], path: str) -> Manifest:
    """Return a container that installs the packages before its command.

    Raises `InvalidTask` if the container has neither a command nor arguments. `path` is its path in the task.
    """
    command, words = (get_texts(container, key) for key in ("command", "args"))
    if not command and not words:
        message = "is empty, so packages cannot be installed before the command of the image"
        remedy = "write the command of the task, or leave packages out"
        raise InvalidTask(build_problem(f"{path}.args", [], message, remedy))
    installer = ["python3", "-I", "-c", PROGRAM, msgspec.json.encode([*packages]).decode()]
    # The entry point of the image receives the arguments if there is no command.
    changed = (
        {"command": installer, "args": [*command, *words]} if command else {"args": [*installer, *words]}
    )
    return {**container, **changed}


def find_failure(exit_code: int, message: str) -> str:
    """Return the message about a failed installation of packages; empty if the container has another failure.

    `exit_code` and `message` are those of the container's termination.
    """
    if exit_code != EXIT_CODE:
        return ""
    lines = [line for line in message.splitlines() if line.startswith(_PREFIX)]
    return _FAILED + lines[-1].removeprefix(_PREFIX) if lines else ""
