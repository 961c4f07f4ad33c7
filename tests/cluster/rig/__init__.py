"""A real cluster on this machine, built from pinned Go modules; it ends with the process that started it.

`tools` builds the programs, and `process` runs them in a place. `certificates` and `api` connect the
programs and the tests. `control_plane` is the part that every cluster has. Tests add `operator`, `trainer`,
`scheduling` and `fake_nodes`.

`real_cluster` is a cluster whose pods are containers. `namespaces` provides its machines, `debian` and
`images` the programs for containers, and `node` the node components. `leftovers` removes resources
that outlive the processes.
"""
