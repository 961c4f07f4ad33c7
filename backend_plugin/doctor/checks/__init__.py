"""A module a subject; `doctor.table` lists them."""
