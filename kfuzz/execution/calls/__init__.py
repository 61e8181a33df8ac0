"""Calls of a kernel, and what they leave.

`environment` is the one way to call: what holds meanwhile, and what comes of it;
`raised` keeps what left a kernel, `results` reads what it returned. `run` calls it on
one case, with all that can be watched; `batches` on many that share a structure, with
one check for all of them: what is not right there is judged alone. `gathering` copies
the results of a batch at once. `overlap` calls it from threads or beside a busy
stream, `large` on billions of elements.
"""
