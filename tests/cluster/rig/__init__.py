"""A real cluster on this machine: built from pinned modules, started on loopback, gone with who started it.

`tools` builds the programs, `process` runs them, `certificates` and `api` let them and us speak to each
other; `control_plane` is what every cluster has, `operator`, `scheduling` and `fake_nodes` what a test may
add.
"""
