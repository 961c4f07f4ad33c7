"""Code that the Flyte plugin and the connector share; it depends only on the standard library.

`causes`       the causes of failures, and the choice of the root cause
`operator_env`  the environment variables that the training operator sets for replicas
`forkserver`   processes that fork from a server after it has imported the libraries
`output_lines`        the output of several processes as complete lines with prefixes
`prestart`     early start of the fork server under `pyflyte run`
"""
