"""Pure functions and values, without access to the clock, the network or the environment."""
