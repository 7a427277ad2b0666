// Part of the tests that are declared with ONE_THREAD: they die when they start a thread, because
// ThreadSanitizer's build leaves them out.
#include <pthread.h>

#include "common/base/check.h"

extern "C" int pthread_create(pthread_t* /*thread*/,
                              const pthread_attr_t* /*attributes*/,
                              void* (* /*start*/)(void*),
                              void* /*argument*/) {
  BATON_CHECK(false, "a test that is declared with ONE_THREAD starts a thread");
}
