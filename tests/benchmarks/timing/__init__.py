"""What `throughput.py` measures, and how."""
