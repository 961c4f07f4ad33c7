"""The operators that the embedded cluster emulates: one folder for each, and a table of them.

- actions: input and output of a pass over one job.
- base: the interface of an operator.
- table: the table of all operators.
"""
