"""Two threads read values of a type that no one has used before."""

import subprocess
import sys

from backend_plugin.core import schema_check

# A short switch interval makes the threads change within the first use of a type.
PROGRAM = """
import sys
import threading

from backend_plugin.core import schema_check

sys.setswitchinterval(1e-6)
schema_check.prepare_types()
barrier = threading.Barrier(2)


def read():
    barrier.wait()
    pod = {"containers": [{"name": "a", "image": "b"}], "affinity": {}}
    schema_check.convert_value(pod, "PodSpec", "spec")


threads = [threading.Thread(target=read) for _ in range(2)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


def test_types_are_complete_before_threads_use_them() -> None:
    # Without the preparation about half of the processes end with a segmentation fault.
    for _ in range(6):
        assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 0
    schema_check.prepare_types()  # Again, without effect.
    assert schema_check.check_value({"containers": []}, "PodSpec", "spec") == []
