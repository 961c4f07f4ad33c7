"""Two threads read values of a type that no one has used before."""

import subprocess
import sys

from backend_plugin.core import shapes

# A short switch interval makes the threads change within the first use of a type.
PROGRAM = """
import sys
import threading

from backend_plugin.core import shapes

sys.setswitchinterval(1e-6)
shapes.prepare()
barrier = threading.Barrier(2)


def read():
    barrier.wait()
    shapes.read({"containers": [{"name": "a", "image": "b"}], "affinity": {}}, "PodSpec", "spec")


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
    shapes.prepare()  # Again, without effect.
    assert shapes.problems({"containers": []}, "PodSpec", "spec") == []
