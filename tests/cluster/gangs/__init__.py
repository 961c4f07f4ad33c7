"""Gang scheduling on real schedulers, as a platform has them.

`grounds` has clusters with one scheduler each and the platforms on them. `scene` connects our server to a
platform. `scenarios` has the test scenarios, and `told` the messages that users see.
"""
