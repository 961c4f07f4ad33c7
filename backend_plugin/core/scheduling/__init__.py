"""What a gang scheduler is told of a job.

requests: what a pod asks for.
"""
