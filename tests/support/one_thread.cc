// Linked into the tests that are declared with ONE_THREAD. Such a test aborts when it starts a
// thread, because the ThreadSanitizer build does not contain these tests.
#include <pthread.h>

#include "common/base/check.h"

extern "C" int pthread_create(pthread_t* /*thread*/,
                              const pthread_attr_t* /*attributes*/,
                              void* (* /*start*/)(void*),
                              void* /*argument*/) {
  BATON_CHECK(false, "a test that is declared with ONE_THREAD must not start a thread");
}
