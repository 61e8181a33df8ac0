// Reductions over the threads of a block, whose number is a power of two.

__device__ inline float larger(float a, float b) { return a > b ? a : b; }
__device__ inline float sum(float a, float b) { return a + b; }

template <float (*JOIN)(float, float)>
__device__ float over_block(float value, float *shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      shared[threadIdx.x] = JOIN(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  float joined = shared[0];
  __syncthreads();
  return joined;
}
