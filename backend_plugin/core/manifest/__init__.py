"""Builds the pod templates of a job (`pod`, `pod_*`) and the metadata of the job (`object_metadata`)."""
