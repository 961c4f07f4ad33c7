"""Exclusion of tests that import torch, for environments without torch."""

import importlib.util

_NEED_TORCH = ["test_gloo_fallback.py", "test_loopback.py", "test_result_torch.py"]
collect_ignore = [] if importlib.util.find_spec("torch") else _NEED_TORCH
