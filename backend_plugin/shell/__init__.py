"""The server: gRPC services, cluster cache, background operations, object stores and settings."""
