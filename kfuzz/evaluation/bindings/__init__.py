"""Whether what a user brought can judge a kernel, asked before anything is searched.

An operator of kfuzz's own is calibrated by witnesses; one that a user brought is tried
on a few small cases: its oracle, its error model, its relation and `within`, and the
recipe of a launch. What fails here would fail every case, in which nothing is compared.
"""
