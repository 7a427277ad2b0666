#pragma once

namespace baton {

// A visitor for std::visit, made of one lambda for each alternative of the variant.
template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace baton
