"""The backend: it creates the job for a Flyte task template and reports the phase of the job.

Start reading with `core.pipeline`.
"""
