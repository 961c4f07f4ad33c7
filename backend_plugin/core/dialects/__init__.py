"""The kinds of jobs, one folder each: `base` defines the interface, and `table` lists them."""
