// SPDX-License-Identifier: Apache-2.0
// A CUDA driver for tests: it does nothing but write each call to the file TILELANG_STUB_LOG as one JSON line.
// cuModuleGetFunction knows the sizes of kernel parameters from the environment (TILELANG_STUB_PARAMS="8,8,4").
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void* current = 0;
static FILE* file(void) { return fopen(getenv("TILELANG_STUB_LOG"), "a"); }
static int fails(const char* name) {
  const char* f = getenv("TILELANG_STUB_FAIL");
  return f && strcmp(f, name) == 0 ? 1 : 0;
}
#define LOG(...) do { FILE* f_ = file(); fprintf(f_, __VA_ARGS__); fclose(f_); } while (0)

int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* n) { *n = 1; return 0; }
int cuDeviceGetAttribute(int* v, int a, int d) { *v = a == 75 ? 9 : a == 76 ? 0 : 132; return 0; }
int cuGetErrorName(int e, const char** s) { *s = "CUDA_ERROR_INVALID_VALUE"; return 0; }
int cuGetErrorString(int e, const char** s) { *s = "invalid argument"; return 0; }
int cuDeviceGet(int* d, int i) { *d = i; return 0; }
int cuDevicePrimaryCtxRetain(void** c, int d) { *c = (void*)(uintptr_t)(d + 100); LOG("{\"call\": \"retain\", \"device\": %d}\n", d); return 0; }
int cuCtxGetCurrent(void** c) { *c = current; return 0; }
int cuCtxPushCurrent_v2(void* c) { current = c; return 0; }
int cuCtxPopCurrent_v2(void** c) { *c = current; current = 0; return 0; }
int cuModuleLoadData(void** m, const void* image) { *m = (void*)7; LOG("{\"call\": \"load\", \"image\": \"%.8s\"}\n", (const char*)image); return fails("load"); }
int cuModuleUnload(void* m) { return 0; }
int cuModuleGetFunction(void** f, void* m, const char* name) { *f = strdup(name); LOG("{\"call\": \"function\", \"name\": \"%s\"}\n", name); return 0; }
int cuFuncSetAttribute(void* f, int a, int v) { LOG("{\"call\": \"attribute\", \"function\": \"%s\", \"attribute\": %d, \"value\": %d}\n", (char*)f, a, v); return fails("attribute"); }
int cuMemAlloc_v2(unsigned long long* p, size_t n) { *p = 4096; return 0; }
int cuMemsetD8_v2(unsigned long long p, unsigned char v, size_t n) { return 0; }
int cuMemFree_v2(unsigned long long p) { return 0; }
int cuMemsetD8Async(unsigned long long p, unsigned char v, size_t n, void* s) { return 0; }
int cuStreamCreate(void** s, unsigned f) { *s = malloc(1); return 0; }
int cuStreamDestroy_v2(void* s) { free(s); return 0; }
int cuStreamSynchronize(void* s) { return 0; }
int cuStreamGetId(void* s, unsigned long long* id) { *id = (unsigned long long)(size_t)s; return 0; }
int cuStreamGetCaptureInfo_v2(void* s, int* active, unsigned long long* id, void* g, void* d, size_t* n) {
  const char* capture = getenv("TILELANG_STUB_CAPTURE");
  *active = capture != NULL;
  *id = capture != NULL ? strtoull(capture, NULL, 10) : 0;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) { return 0; }
int cuEventCreate(void** e, unsigned f) { *e = malloc(1); return 0; }
int cuEventDestroy_v2(void* e) { free(e); return 0; }
int cuEventRecord(void* e, void* s) { LOG("{\"call\": \"record\", \"stream\": %llu}\n", (unsigned long long)(uintptr_t)s); return 0; }
int cuEventSynchronize(void* e) { return 0; }
int cuEventElapsedTime(float* ms, void* a, void* b) { *ms = 1.5f; return 0; }

static void list64(FILE* f, const char* k, const uint64_t* v, int n) {
  fprintf(f, ", \"%s\": [", k);
  for (int i = 0; i < n; ++i) fprintf(f, "%s%llu", i ? ", " : "", (unsigned long long)v[i]);
  fprintf(f, "]");
}
static void list32(FILE* f, const char* k, const uint32_t* v, int n) {
  fprintf(f, ", \"%s\": [", k);
  for (int i = 0; i < n; ++i) fprintf(f, "%s%u", i ? ", " : "", v[i]);
  fprintf(f, "]");
}

int cuTensorMapEncodeTiled(uint64_t* map, int type, uint32_t rank, void* address, const uint64_t* dims, const uint64_t* strides,
                           const uint32_t* box, const uint32_t* es, int interleave, int swizzle, int l2, int oob) {
  if ((uintptr_t)map % 128) return 1;
  memset(map, 0, 128);
  map[0] = (uint64_t)(uintptr_t)address;
  FILE* f = file();
  fprintf(f, "{\"call\": \"encode\", \"type\": %d, \"rank\": %u, \"address\": %llu, \"interleave\": %d, \"swizzle\": %d, \"l2\": %d, \"oob\": %d",
          type, rank, (unsigned long long)(uintptr_t)address, interleave, swizzle, l2, oob);
  list64(f, "dims", dims, rank);
  list64(f, "strides", strides, rank - 1);
  list32(f, "box", box, rank);
  list32(f, "element_strides", es, rank);
  fprintf(f, "}\n");
  fclose(f);
  return fails("encode");
}

struct attribute { unsigned id; char pad[4]; unsigned value[16]; };
struct config { unsigned grid[3], block[3], shared; void* stream; struct attribute* attributes; unsigned count; };

int cuLaunchKernelEx(const struct config* c, void* function, void** params, void** extra) {
  FILE* f = file();
  fprintf(f, "{\"call\": \"launch\", \"function\": \"%s\", \"shared\": %u, \"stream\": %llu", (char*)function, c->shared,
          (unsigned long long)(uintptr_t)c->stream);
  list32(f, "grid", c->grid, 3);
  list32(f, "block", c->block, 3);
  fprintf(f, ", \"attributes\": [");
  for (unsigned i = 0; i < c->count; ++i)
    fprintf(f, "%s[%u, %u, %u, %u]", i ? ", " : "", c->attributes[i].id, c->attributes[i].value[0], c->attributes[i].value[1], c->attributes[i].value[2]);
  fprintf(f, "], \"params\": [");
  const char* sizes = getenv("TILELANG_STUB_PARAMS");
  char buffer[256];
  strncpy(buffer, sizes ? sizes : "", 255);
  int i = 0;
  for (char* token = strtok(buffer, ","); token; token = strtok(0, ","), ++i) {
    int n = atoi(token);
    fprintf(f, "%s\"", i ? ", " : "");
    for (int b = 0; b < n; ++b) fprintf(f, "%02x", ((unsigned char*)params[i])[b]);
    fprintf(f, "\"");
  }
  fprintf(f, "]}\n");
  fclose(f);
  return fails("launch");
}
