"""Values in, values out: no clock, no network, no environment."""
