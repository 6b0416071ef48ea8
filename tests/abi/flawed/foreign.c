/* A library of nobody's, for a plugin to need. */
__attribute__((visibility("default"))) int foreign_answer(void) { return 42; }
