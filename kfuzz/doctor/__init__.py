"""`kfuzz doctor`: what kfuzz needs on a machine, and whether it is there.

`verb` asks and prints; `self_check` is what its children try.
"""
