"""Clusters that are broken, for `kfpytorch doctor` to find what it is.

`healthy` makes one in which nothing is wrong; `manifests` has the objects of both. `breaks` is the table of
what is broken in it, and put right again: of the `platform`, of `flytes` own parts, and of `workloads`;
`shape` says what a row is, `around_it` does what an object more cannot, and `beside` has what lies beside a
cluster. `looking` asks the doctor.
"""
