"""What a kernel, a platform and the contracts themselves are worth.

`grading` folds a campaign to a conformance statement, `statement_text` says what level
it reaches, lays it out and compares two, `certificate` signs one and verifies it.
`calibrating` searches the witnesses and judges the contracts by them. `verb` is
`kfuzz grade` and `kfuzz calibrate`.
"""
