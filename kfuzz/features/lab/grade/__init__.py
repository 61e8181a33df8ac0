"""What a kernel, a platform and the contracts themselves are worth.

`grading` folds a campaign to a conformance statement, `levels` says what level it
reaches, `against` sets two side by side, `statement_text` lays one out; `verb` is
`kfuzz grade`. `calibrating` searches the witnesses, in the children of `witness_pool`
as `witness_search` says, and judges the contracts by them; `calibration_text` lays that
out, `calibrate_verb` is `kfuzz calibrate`.
"""
