"""What an API server of Kubernetes sends as protobuf, as far as it is read; generated like ``v1``."""
