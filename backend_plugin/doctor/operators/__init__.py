"""The operators of jobs: the checks and manifests of the doctor that depend on the dialect.

`base` defines the interface, each operator is one folder, and `table` lists them.
"""
