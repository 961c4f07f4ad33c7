"""The rules for tasks, manifests and Flyte phases: pure functions without clock, network or environment."""
