"""Calls of a kernel, and what they leave.

`results` calls it on one case, with all that can be watched, and reads what it
returned or raised; `batches` on many that share a structure, with one check for all of
them: what is not right there is judged alone. `overlap` calls it from threads or beside
a busy stream. `compiling` watches compilations, `tuning` plays the tuner,
`torch_state` puts settings of torch back.
"""
