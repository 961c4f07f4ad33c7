"""Check modules, one per subject; `doctor.registry` lists all checks."""
