"""Code that the Flyte plugin and the connector share; it depends only on the standard library."""
