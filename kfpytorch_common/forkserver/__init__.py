"""A fork server: a process that imports libraries such as torch once, and forks child processes."""
