// A driver of NVIDIA's, as far as the runtime library asks before it finds it too old.
int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}
