"""A fleet: the local engine in many processes of many machines, and one driver.

driver     the only writer of the corpus and of events: which units there are, findings
           reported once, what the units of a kernel come to together
worker     what a unit is, how a worker does one, and Ray's tasks as workers
"""
