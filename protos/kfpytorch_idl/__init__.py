"""The wire's own messages, generated from the ``.proto`` files beside them by ``make generate``."""
