"""CUDA C++ compiled, loaded and launched, and the driver below torch."""
