typedef long long index_t;

static __device__ float positive(float v) { return v < 0.0f ? 0.0f : v; }

// Loads x[0, n + after): what lies behind is not used.
extern "C" __global__ void relu_elements(
    const float *x, float *y, index_t n, index_t after) {
  index_t i = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
  float v = 0.0f;
  // Volatile: a value that nothing uses is loaded all the same.
  if (i < n + after) v = *(const volatile float *)(x + i);
  if (i < n) y[i] = positive(v);
}

// Loads n / 4 vectors of x, and the rest of its elements one by one.
extern "C" __global__ void relu_vectors(const float *x, float *y, index_t n) {
  index_t i = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
  index_t whole = n / 4;
  if (i < whole) {
    float4 v = ((const float4 *)x)[i];
    y[4 * i] = positive(v.x);
    y[4 * i + 1] = positive(v.y);
    y[4 * i + 2] = positive(v.z);
    y[4 * i + 3] = positive(v.w);
  }
  if (i < n - 4 * whole) y[4 * whole + i] = positive(x[4 * whole + i]);
}

// One block for each row.
extern "C" __global__ void relu_rows(const float *x, float *y, index_t n) {
  index_t row = blockIdx.x * n;
  for (index_t j = threadIdx.x; j < n; j += blockDim.x)
    y[row + j] = positive(x[row + j]);
}
