"""What is asked of the cluster for a job: pods here, the job around them beside them."""
