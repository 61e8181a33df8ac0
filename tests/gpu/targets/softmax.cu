// Softmax of each row of a contiguous matrix of float32, one block for each row.

#include "reduce.cuh"

// The sum takes the first `summed` of the n elements.
__device__ void softmax_row(const float *x, float *y, int n, int summed) {
  extern __shared__ float shared[];
  x += (long long)blockIdx.x * n;
  y += (long long)blockIdx.x * n;
  float top = __int_as_float(0xff800000);
  for (int j = threadIdx.x; j < n; j += blockDim.x) top = larger(x[j], top);
  top = over_block<larger>(top, shared);
  float total = 0.0f;
  for (int j = threadIdx.x; j < summed; j += blockDim.x) total += expf(x[j] - top);
  total = over_block<sum>(total, shared);
  for (int j = threadIdx.x; j < n; j += blockDim.x) y[j] = expf(x[j] - top) / total;
}

extern "C" __global__ void softmax_rows(const float *x, float *y, int n) {
  softmax_row(x, y, n, n);
}

// As if loaded in vectors of four, without the elements that are left.
extern "C" __global__ void softmax_rows_tail(const float *x, float *y, int n) {
  softmax_row(x, y, n, n < 4 ? n : n / 4 * 4);
}

template <typename T>
__global__ void scaled(const T *x, T *y, long long n, T factor) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * factor;
}
