"""What a kernel, a platform and the contracts themselves are worth.

`grading` folds a campaign to a conformance statement, `statement_text` says what level
it reaches and lays it out.
`calibrating` searches the witnesses and judges the contracts by them. `verb` is
`kfuzz grade` and `kfuzz calibrate`.
"""
