"""The operators of jobs: the checks and manifests of the doctor that depend on the dialect."""
