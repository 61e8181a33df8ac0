typedef long long index_t;

static __device__ float over_warp(float v) {
  for (int step = 16; step; step /= 2) v += __shfl_down_sync(~0u, v, step);
  return v;
}

// y[i] = sum of x[i, :], a block for each row. Each warp leaves a part in shared
// memory, of which the last warp makes the total.
extern "C" __global__ void sum_rows(
    const float *x, float *y, index_t n, index_t clear, index_t idle, index_t wait) {
  __shared__ float parts[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (clear) {
    if (threadIdx.x < 32) parts[threadIdx.x] = 0.0f;
    __syncthreads();
  }
  const float *row = x + blockIdx.x * n;
  float sum = 0.0f;
  for (index_t j = threadIdx.x; j < n; j += blockDim.x) sum += row[j];
  sum = over_warp(sum);
  // A warp without a column has nothing to say, and should say so.
  if (lane == 0 && (idle || warp * 32 < n)) parts[warp] = sum;
  if (wait) __syncthreads();
  if (warp == warps - 1) {
    float total = over_warp(
        lane < warps ? *(const volatile float *)(parts + lane) : 0.0f);
    if (lane == 0) y[blockIdx.x] = total;
  }
}
