"""Implementations that calibrate the contracts: correct twins and planted faults.

A conforming witness never gives a finding; a violating one passes the plain
functional test (`functional.passes_functional`) and breaks the contract that its
docstring names. `functional.WITNESSES` lists them all.
"""
