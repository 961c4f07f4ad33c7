"""The manifests of a job: its pods (`pod`, `pod_*`) and the metadata of the job that contains them."""
