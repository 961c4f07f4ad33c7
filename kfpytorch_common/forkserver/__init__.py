"""Processes from a server that has paid for the imports once.

Lives here: the server (`server`), what a child does before the code it was started for (`child`),
the caller's end (`client`) and the messages between them (`messages`). Standard library only.
Does not live here: what the children are for; see `flytekitplugins.kfpytorch.worker`.
"""
