"""What runs inside a replica, in a pod or on this machine."""
