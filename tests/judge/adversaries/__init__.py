"""Candidates that lie, each beside an honest one that looks alike.

| | |
| --- | --- |
| `problems.py` | references, each with two spellings of the same result |
| `triggers.py` | what a liar looks at: lies where it holds, and is right elsewhere |
| `bodies.py` | lies that are no condition: late, lazy, remembered, forged, greedy |
| `honest.py` | correct algorithms, with caches, warm-ups and randomness of their own |
| `suite.py` | makes the candidates of a seed, and judges them |

`python -m tests.judge.adversaries` prints the table. Numbers, thresholds, places and
problems are drawn by `--seed`, so that the list is no list to pass.
"""
