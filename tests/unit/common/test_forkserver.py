import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from processes import HERE, ForkCaller, all_gone
from targets import ClassRaises, Finalized

from kfpytorch_common.forkserver import client, launch
from kfpytorch_common.forkserver.child import ASK_WHERE, EXIT_BROKEN
from kfpytorch_common.forkserver.launch import ForkServer
from kfpytorch_common.loaded_modules import find_loaded

Connect: TypeAlias = Callable[[ForkServer], ForkCaller]
READ_AT_IMPORT = [
    *("MASTER_ADDR", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTHONPATH", "PYTHONUNBUFFERED"),
    *("PYTHONBREAKPOINT", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
]
READ_LATER = [
    *("OMP_PROC_BIND", "MKL_NUM_THREADS", "KMP_AFFINITY", "LD_PRELOAD", "PYTHONHASHSEED"),
    *("PYTORCH_CUDA_ALLOC_CONF", "TORCH_LOGS", "FLYTE_SDK_LOGGING_LEVEL", "FLYTE_KFPYTORCH_FORK"),
]


def test_child_gets_all_properties_of_its_spec(caller, tmp_path):
    (tmp_path / "input").write_text("typed\n")
    outputs = [(tmp_path / name).open("w+") for name in ("out", "error", "told")]
    extra, extra_end = os.pipe()
    os.write(extra_end, b"through the pipe")
    job = client.ChildSpec(
        target="targets:tell_all",
        args={"names": ["GIVEN", "HOME"], "nested": [1, None, "ü"]},
        env={"GIVEN": "a value", "PATH": os.environ["PATH"]},
        cwd=str(tmp_path),
        path=[HERE, *client.build_import_path(), "/no/such/place"],
        argv=["script.py", "--option"],
    )
    with (tmp_path / "input").open() as typed, outputs[0] as out, outputs[1] as error, outputs[2] as report:
        ends = [*(file.fileno() for file in (typed, out, error, report)), extra]
        number, _ = caller.client.start(job, ends)
        assert caller.client.wait_for_exits(8.0) == [(number, 0)]
        texts = [Path(file.name).read_text() for file in (out, error)]
        properties = json.loads(Path(report.name).read_text())
    os.close(extra)
    os.close(extra_end)
    assert texts == ["to standard output\n", "to standard error\n"]
    assert properties == {
        "args": job.args,
        "env": {"GIVEN": "a value", "HOME": None},
        "getenv": "a value\n",
        "cwd": str(tmp_path),
        "path": job.path,
        "argv": job.argv,
        "input": "typed\n",
        "extra": "through the pipe",
        "server": False,
        "ignores_sigpipe": True,
        "leads": True,
    }


ENDS: tuple[tuple[str, object, int], ...] = (
    ("code", 0, 0),
    ("code", 3, 3),
    ("exit", None, 0),
    ("exit", 4, 4),
    ("exit", "words", 1),
    ("raise", None, EXIT_BROKEN),
    ("signal", signal.SIGKILL, -signal.SIGKILL),
    ("signal", signal.SIGHUP, -signal.SIGHUP),
)


def test_exit_code_of_a_child_equals_that_of_subprocess(caller):
    codes = [caller.start("end", {"how": how, "code": code}).code() for how, code, _ in ENDS]
    assert codes == [expected for *_, expected in ENDS]


def test_unknown_target_breaks_only_its_child(caller):
    lost = caller.start("nothing_of_that_name")
    assert lost.code() == EXIT_BROKEN
    assert "nothing_of_that_name" in lost.out.read()
    codes = {caller.start("end", {"how": "code", "code": code}).number: code for code in (11, 12, 13)}
    exits = {}
    while len(exits) < len(codes):
        exits |= dict(caller.client.wait_for_exits(8.0))
    assert exits == codes


def test_child_exits_like_an_interpreter(caller):
    child = caller.start("leave_traces")
    assert (child.code(), child.out.read()) == (0, "no line endfrom the log\n")
    assert child.all_told() == ["thread", "finalizer", "exit handler"]


def test_objects_that_raise_on_inspection_do_not_change_the_exit_code(caller, tmp_path):
    child = caller.start("leave_objects_that_raise", {"file": str(tmp_path / "file")})
    assert (child.code(), (tmp_path / "file").read_text()) == (0, "buffered")


def test_modules_that_raise_or_load_on_inspection_are_skipped(monkeypatch, tmp_path):
    (tmp_path / "loaded_later.py").write_text("raise RuntimeError('loaded')")
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.find_spec("loaded_later")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    lazy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lazy)
    monkeypatch.setitem(sys.modules, "loaded_later", lazy)
    monkeypatch.setitem(sys.modules, "raises", ClassRaises())
    sys.path.remove(str(tmp_path))
    assert str(tmp_path) in client.build_import_path()
    assert [find_loaded(name) for name in ("loaded_later", "raises", "absent")] == [None] * 3
    assert find_loaded("json") is json


def test_module_under_another_name_adds_nothing_to_the_path(monkeypatch):
    # With this directory on the path, a later `import signal` would load scipy.signal.
    extension = ModuleType("package._extension")
    extension.__file__ = "/site-packages/package/_extension.so"
    monkeypatch.setitem(sys.modules, "_extension", extension)
    added = {"/site-packages/package", str(Path(importlib.__file__).parent)}
    assert added.isdisjoint(client.build_import_path())


def test_interpreter_that_cannot_start_shows_the_reason(connect, tmp_path, monkeypatch):
    (tmp_path / "ctypes.py").write_text("raise ImportError('a file of the user hides ctypes')")
    monkeypatch.setenv("FLYTE_KFPYTORCH_FORK", "0")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    child = connect(launch.start_fresh_server(())).start("leave_traces")
    assert (child.code(), "a file of the user hides ctypes" in child.out.read()) == (1, True)


def test_signal_to_a_child_reaches_only_that_child(caller):
    child = caller.start("wait_for_poke")
    child.read_message()
    caller.client.signal_child(child.number, signal.SIGUSR1)
    assert child.code() == 0


def test_signal_before_its_handler_or_after_the_end_has_no_effect(caller):
    child = caller.start("end", {"how": "code", "code": 0})
    # The child may not handle this signal yet, and ignores it until then.
    caller.client.signal_child(child.number, ASK_WHERE)
    assert child.code() == 0
    caller.client.signal_group(child.number, signal.SIGKILL)
    caller.client.signal_child(child.number, signal.SIGKILL)
    for _ in range(2):
        caller.client.release(child.number)
    caller.client.wait_until_handled()
    assert caller.client.wait_for_exits() == []


def test_child_may_start_children_and_receives_their_exits(caller):
    child = caller.start("agent", {"how": "collect"}, serve=True)
    _, grandchild = child.read_message()["pids"]
    assert (child.read_message(), child.code()) == ([[0, -signal.SIGKILL]], 0)
    assert all_gone(grandchild, within=2.0)


def test_only_a_forked_server_inherits_a_value_without_pickling(connect):
    held = threading.Lock()
    held.acquire()
    value = {"function": lambda x: x + 1, "lock": held}
    forked = connect(launch.start_forked_server((), value))
    assert forked.start("tell_inherited").read_message() == {"called": 21, "free": False}
    fresh = connect(launch.start_fresh_server(()))
    assert fresh.start("tell_inherited").read_message() is None


def test_finalizer_of_a_child_runs_although_the_server_has_others(connect):
    ours = Finalized()
    end = weakref.finalize(ours, print, "this one is not the child's")
    child = connect(launch.start_forked_server(())).start("leave_traces")
    end.detach()
    assert (child.code(), "finalizer" in child.all_told()) == (0, True)
    assert "this one" not in child.out.read()


def test_exit_handlers_and_partial_lines_of_the_caller_stay_with_the_caller():
    command = [sys.executable, "-c", "import targets; targets.polite_caller()"]
    ran = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("half a line of the caller goodbye of the caller\n", "")


def test_server_is_unsuitable_if_it_ended_or_variables_read_at_import_changed(connect):
    dead, stopped = (connect(launch.start_fresh_server(())).server for _ in range(2))
    for name in (*READ_AT_IMPORT, *READ_LATER):
        without = {key: value for key, value in dead.env.items() if key != name}
        suitable = [dead.is_suitable(without | {name: value}) for value in ("1", "2")]
        assert suitable == [name in READ_AT_IMPORT] * 2, name
    assert (dead.is_suitable(dead.env), stopped.is_suitable(stopped.env)) == (True, True)
    os.kill(dead.pid, signal.SIGKILL)
    stopped.stop()
    assert all_gone(dead.pid, stopped.pid, within=2.0)
    assert (dead.is_suitable(dead.env), stopped.is_suitable(stopped.env)) == (False, False)


def test_unloadable_module_does_not_break_the_children(connect, tmp_path, monkeypatch):
    # A fresh server loads no module from the working directory.
    for name in ("selectors", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the user')")
    monkeypatch.chdir(tmp_path)
    unharmed = connect(launch.start_fresh_server(["no_such_module", "json"]))
    monkeypatch.undo()
    assert unharmed.start("end", {"how": "code", "code": 0}).code() == 0
