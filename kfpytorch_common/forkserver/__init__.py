"""A fork server: child processes fork from it after it has imported the libraries.

The modules are the server (`server`), the setup of a child (`child`), the client (`client`) and the messages
(`messages`). Standard library only.
"""
