"""What the author's half and the platform's half agree on; the standard library only, a leaf.

`causes`       one vocabulary for why a replica ended, and which of several failures was first
`environment`  the variables that the operator gives each replica
`forkserver`   processes from a server that has paid for the imports once
`lines`        output of many processes as whole, prefixed lines
`prestart`     the fork server's head start under `pyflyte run`
"""
