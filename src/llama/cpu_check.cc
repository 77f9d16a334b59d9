#include "llama/cpu_check.h"

#include "ggml-cpu.h"

namespace polykv {

std::string MissingCpuFeatures() {
  std::string missing;
#if defined(__x86_64__) && defined(__GNUC__)
  const auto need = [&missing](const char* name, int compiled_in, int available) {
    if (compiled_in == 0 || available != 0) return;
    missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  need("SSE3", ggml_cpu_has_sse3(), __builtin_cpu_supports("sse3"));
  need("SSSE3", ggml_cpu_has_ssse3(), __builtin_cpu_supports("ssse3"));
  need("AVX", ggml_cpu_has_avx(), __builtin_cpu_supports("avx"));
  need("AVX-VNNI", ggml_cpu_has_avx_vnni(), __builtin_cpu_supports("avxvnni"));
  need("AVX2", ggml_cpu_has_avx2(), __builtin_cpu_supports("avx2"));
  need("FMA", ggml_cpu_has_fma(), __builtin_cpu_supports("fma"));
  need("F16C", ggml_cpu_has_f16c(), __builtin_cpu_supports("f16c"));
  need("BMI2", ggml_cpu_has_bmi2(), __builtin_cpu_supports("bmi2"));
  need("AVX-512F", ggml_cpu_has_avx512(), __builtin_cpu_supports("avx512f"));
  need("AVX-512VBMI", ggml_cpu_has_avx512_vbmi(), __builtin_cpu_supports("avx512vbmi"));
  need("AVX-512VNNI", ggml_cpu_has_avx512_vnni(), __builtin_cpu_supports("avx512vnni"));
  need("AVX-512BF16", ggml_cpu_has_avx512_bf16(), __builtin_cpu_supports("avx512bf16"));
#endif
  return missing;
}

}  // namespace polykv
