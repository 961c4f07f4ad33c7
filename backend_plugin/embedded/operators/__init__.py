"""The operators that the embedded cluster emulates: one folder for each, and a table of them."""
