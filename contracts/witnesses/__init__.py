"""Implementations that calibrate the contracts: correct twins and planted faults.

A conforming witness never gives a finding; a violating one passes the plain functional
test (`kfuzz.evaluation.evaluator`) and breaks the contract that it declares, by
`witness` above its kernel. `roster` collects them.
"""
