"""The checks and manifests of the doctor that depend on the kind of job and its operator."""
