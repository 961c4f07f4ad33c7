"""What needs torch to be read at all is left out where the interpreter matrix installs none."""

import importlib.util

_NEED_TORCH = ["test_gloo.py", "test_loopback.py", "test_result_torch.py"]
collect_ignore = [] if importlib.util.find_spec("torch") else _NEED_TORCH
