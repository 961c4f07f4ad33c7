"""Gang scheduling on real schedulers, as a platform has them."""
