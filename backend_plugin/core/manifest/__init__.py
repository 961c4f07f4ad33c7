"""The manifests of a job: its pods (`pod`, `pod_*`) and the PyTorchJob that contains them."""
