"""A fleet: the local engine in many processes of many machines, and one driver.

plan       which worker does what: a state machine, pure
work       what a worker is asked, and what it tells
worker     runs one unit after the other, each in a process of its own
process    that process
driver     follows the plan: the only writer of the corpus and of events
filing     findings in the corpus, each told once
tallies    what the units of a kernel come to together
versions   what must be the same on all machines
ray_fleet  Ray's actors as workers
elsewhere  what the verbs call
"""
