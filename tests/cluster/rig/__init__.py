"""A real cluster on this machine: built from pinned Go modules, and gone with who started it.

`tools` builds the programs, `process` runs them in a `place`, `certificates` and `api` let them and us speak
to each other; `control_plane` is what every cluster has, `operator`, `scheduling` and `fake_nodes` what a
test may add.

`real_cluster` is one whose pods are containers: `namespaces` are its machines, `debian` and `images` what
runs there, `node` and `dns` what makes them a cluster's; `leftovers` removes what outlives it.
"""
