"""Check modules, one per subject. The docstring of a check is the condition that it tests."""
