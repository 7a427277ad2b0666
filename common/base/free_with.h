#pragma once

namespace baton {

// A deleter of std::unique_ptr for objects of a C library, which the function kFree ends.
template <auto kFree>
struct FreeWith {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};

}  // namespace baton
