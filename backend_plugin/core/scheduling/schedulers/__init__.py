"""A module a gang scheduler, none of which knows another; `scheduling.table` lists them."""
