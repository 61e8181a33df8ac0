"""The prover against the falsifier: what is proved, and what a search breaks."""
