"""Check modules, one per subject; `doctor.table` lists all checks."""
