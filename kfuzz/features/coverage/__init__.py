"""libFuzzer draws the cases of a search, guided by the branches that they reach."""
