"""The operators that the embedded cluster emulates: a folder for each operator, and a table of operators."""
