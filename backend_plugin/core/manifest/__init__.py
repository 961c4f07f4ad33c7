"""What the cluster is asked for: the pods of a job (`pod`, `pod_*`), and the job around them."""
