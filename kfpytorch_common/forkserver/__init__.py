"""A fork server: child processes fork from it after it has imported the libraries."""
