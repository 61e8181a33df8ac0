"""quantize_fp8(x, eps): 8-bit floating-point codes (E4M3) of rows, and their scales."""

from kfuzz.contracts.operators.quantization.quantize_int8 import quantizer

quantize_fp8 = quantizer("quantize_fp8", "float8_e4m3fn", 448)
