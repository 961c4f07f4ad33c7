"""Derives the verdict on a job (phase, message and logs) from the observed objects.

`verdict_rules` decides, `status` reads the objects once, `final_status` and `root_cause` find the cause of a
failure, and `pending_reasons` finds why pods wait.
"""
