"""A fleet: the local engine in many processes of many machines, and one driver.

dispatch   which worker does what, done anew where one is lost
work       what a worker is asked, and what it reports
worker     runs one unit after the other, each in a process of its own
process    that process
driver     the only writer of the corpus and of events
filing     findings in the corpus, each reported once
tallies    what the units of a kernel come to together
versions   what must be the same on all machines
ray_fleet  Ray's actors as workers
elsewhere  what `kfuzz run` calls
"""
