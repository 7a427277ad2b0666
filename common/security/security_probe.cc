#include "common/security/security_probe.h"

#include <string>

namespace baton {

SecurityProbe::SecurityProbe(MetricsRegistry& registry)
    : registry_(registry),
      failed_reloads_(registry.AddCounter("baton_security_failed_reloads_total",
                                          "Changed files of keys or certificates that could not "
                                          "be read; the earlier content stays valid.")) {}

void SecurityProbe::OnRefused(std::string_view port) {
  registry_
      .AddCounter("baton_security_refused_total",
                  "Peers, clients and operators that did not prove who they are, by port.",
                  {{"port", std::string(port)}})
      .Add();
}

}  // namespace baton
