"""Deliberately broken clusters as test cases for `kfpytorch doctor`.

`healthy` creates a cluster without problems; `manifests` builds the objects of both. `breaks` is the table of
all cases: `platform`, `flytes` and `workloads`. `shape` defines a row of the table, and `around_it` makes the
changes that need more than additional objects. `beside` provides connectors and S3 stores outside the
cluster. `looking` runs the doctor.
"""
