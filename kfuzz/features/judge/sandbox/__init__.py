"""Foreign code in contained children, judged by the bytes that it returns."""
