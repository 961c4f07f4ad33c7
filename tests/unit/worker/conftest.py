"""What needs torch to be read at all is left out where the interpreter matrix installs none."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torch") else ["test_gloo.py", "test_result_torch.py"]
