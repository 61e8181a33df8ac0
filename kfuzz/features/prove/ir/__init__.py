"""From a launch to its access graph: Triton's IR, read and evaluated symbolically."""
