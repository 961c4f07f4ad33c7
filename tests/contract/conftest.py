"""Makes what stands in this folder known to the folders in it."""
