"""The recipes need the environment of `.ci/recipes`."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("trl") else ["test_*.py"]
