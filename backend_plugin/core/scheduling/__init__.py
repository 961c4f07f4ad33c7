"""Gang scheduling: the selection of a scheduler for a job, and the fields and objects that it requires."""
