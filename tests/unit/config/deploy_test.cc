#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "common/config/config.h"

// Checks that the manifests of deploy/kubernetes fit the programs: commands, settings, ports and
// periods, in every variant. tests/deploy checks the manifests as kustomize renders them.
namespace baton {
namespace {

using ::testing::Contains;
using ::testing::Key;

const std::string kFolder = BATON_TEST_DATA "/../../deploy/kubernetes/";
const std::string kBase = kFolder + "base/";

struct Workload {
  std::string name;
  YAML::Node pod;
  YAML::Node container;
};

std::vector<YAML::Node> Documents(const std::string& kind) {
  std::vector<YAML::Node> found;
  for (const char* file : {"router.yaml", "prefill.yaml", "decode.yaml"}) {
    for (const YAML::Node& document : YAML::LoadAllFromFile(kBase + file)) {
      if (document["kind"].as<std::string>() == kind) found.push_back(document);
    }
  }
  return found;
}

std::vector<Workload> Workloads() {
  std::vector<Workload> found;
  for (const char* kind : {"Deployment", "StatefulSet"}) {
    for (const YAML::Node& document : Documents(kind)) {
      const YAML::Node pod = document["spec"]["template"]["spec"];
      found.push_back({document["metadata"]["name"].as<std::string>(), pod, pod["containers"][0]});
    }
  }
  return found;
}

// Replaces $(POD_NAME) and $(POD_IP) as the kubelet does.
std::string Substituted(std::string argument) {
  for (const auto& [from, to] : {std::pair<std::string, std::string>("$(POD_NAME)", "pod-0"),
                                 std::pair<std::string, std::string>("$(POD_IP)", "10.1.2.3")}) {
    const size_t at = argument.find(from);
    if (at != std::string::npos) argument.replace(at, from.size(), to);
  }
  return argument;
}

// The file of the ConfigMap in a variant: the variant's own, or else that of all variants.
std::string ConfigFile(const std::string& variant, const std::string& name) {
  const std::string own = kFolder + variant + "/" + name;
  return std::filesystem::exists(own) ? own : kBase + name;
}

// The configuration that the program loads from the container's command line and files.
std::unique_ptr<google::protobuf::Message> Configuration(const Workload& workload,
                                                         const std::string& variant) {
  ConfigSources sources;
  std::vector<std::string> words;
  for (const char* part : {"command", "args"}) {
    for (const YAML::Node& word : workload.container[part]) {
      words.push_back(Substituted(word.as<std::string>()));
    }
  }
  for (size_t i = 1; i + 1 < words.size(); i += 2) {
    if (words[i] == "--set") {
      sources.overrides.push_back(words[i + 1]);
    } else {
      EXPECT_EQ(words[i], "--config") << workload.name;
      EXPECT_EQ(words[i + 1].rfind("/config/", 0), 0u) << words[i + 1];
      sources.files.push_back(
          ConfigFile(variant, words[i + 1].substr(std::string("/config/").size())));
    }
  }
  EXPECT_EQ(words.at(0), workload.name);  // the program has the workload's name
  EXPECT_EQ(words.size() % 2, 1u) << workload.name;
  std::unique_ptr<google::protobuf::Message> config;
  if (words.at(0) == "baton-router") {
    config = std::make_unique<config::RouterConfig>();
  } else {
    config = std::make_unique<config::WorkerConfig>();
  }
  const Status loaded = LoadConfig(sources, *config);
  EXPECT_TRUE(loaded.ok()) << workload.name << ": " << loaded;
  return config;
}

int PortOf(const std::string& host_port) {
  int port = 0;
  const size_t colon = host_port.rfind(':');
  std::from_chars(host_port.data() + colon + 1, host_port.data() + host_port.size(), port);
  return port;
}

std::map<std::string, int> ContainerPorts(const Workload& workload) {
  std::map<std::string, int> ports;
  for (const YAML::Node& port : workload.container["ports"]) {
    ports[port["name"].as<std::string>()] = port["containerPort"].as<int>();
  }
  return ports;
}

// Checks the settings that both configuration types have: process and model. `grace_seconds`: the
// time before the drain begins.
template <class Config>
void CheckCommon(const Workload& workload, const Config& config, double grace_seconds) {
  EXPECT_EQ(ContainerPorts(workload).at("http"), PortOf(config.process().http_listen()));
  EXPECT_GT(workload.pod["terminationGracePeriodSeconds"].as<double>(),
            grace_seconds + config.process().drain_seconds())
      << workload.name << " would be killed while it drains";
  std::set<std::string> mounts;
  for (const YAML::Node& mount : workload.container["volumeMounts"]) {
    mounts.insert(mount["mountPath"].as<std::string>());
  }
  EXPECT_THAT(mounts, Contains("/config"));
  EXPECT_THAT(mounts, Contains(config.model().path().substr(0, config.model().path().rfind('/'))));
}

class DeployTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Variants,
                         DeployTest,
                         ::testing::Values("cpu", "gpu", "gpu-tp2", "gpu-tp4"));

TEST_P(DeployTest, EveryProgramTakesItsCommandLineAndListensWhereThePodSays) {
  const std::vector<Workload> workloads = Workloads();
  ASSERT_EQ(workloads.size(), 3u);
  for (const Workload& workload : workloads) {
    SCOPED_TRACE(workload.name);
    const auto message = Configuration(workload, GetParam());
    const std::map<std::string, int> ports = ContainerPorts(workload);
    if (const auto* router = dynamic_cast<const config::RouterConfig*>(message.get())) {
      CheckCommon(workload, *router, router->drain_grace_seconds());
      const YAML::Node readiness = workload.container["readinessProbe"];
      // The default of failureThreshold is 3.
      EXPECT_FALSE(readiness["failureThreshold"].IsDefined());
      EXPECT_GT(router->drain_grace_seconds(), 3 * readiness["periodSeconds"].as<double>())
          << "requests would be refused before the pod is out of rotation";
      EXPECT_EQ(router->admin_listen().rfind("127.0.0.1:", 0), 0u) << router->admin_listen();
      EXPECT_EQ(ports.at("grpc"), PortOf(router->listen()));
      EXPECT_EQ(ports.at("workers"), PortOf(router->worker_listen()));
      EXPECT_EQ(router->router_id(), "pod-0");
    } else {
      const auto& worker = dynamic_cast<const config::WorkerConfig&>(*message);
      CheckCommon(workload, worker, 0);
      EXPECT_EQ(ports.at("kv"), PortOf(worker.kv_listen()));
      EXPECT_EQ(worker.kv_advertise(), "10.1.2.3");
      EXPECT_EQ(worker.worker_id(), "pod-0");
      EXPECT_EQ(worker.engine().device() == "cpu" && worker.engine().devices().empty(),
                GetParam() == std::string("cpu"));
    }
    for (const char* probe : {"readinessProbe", "livenessProbe"}) {
      EXPECT_THAT(ports,
                  Contains(Key(workload.container[probe]["httpGet"]["port"].as<std::string>())));
    }
  }
}

TEST_P(DeployTest, ServicesLeadToPortsOfTheirPods) {
  std::map<std::string, int> worker_entrances;  // "service:port" to which workers connect
  for (const YAML::Node& service : Documents("Service")) {
    const std::string name = service["metadata"]["name"].as<std::string>();
    SCOPED_TRACE(name);
    for (const Workload& workload : Workloads()) {
      if (workload.name != service["spec"]["selector"]["app"].as<std::string>()) continue;
      for (const YAML::Node& port : service["spec"]["ports"]) {
        const std::string target = port["targetPort"].as<std::string>();
        EXPECT_THAT(ContainerPorts(workload), Contains(Key(target)));
        worker_entrances[fmt::format("{}:{}", name, port["port"].as<int>())] += target == "workers";
      }
    }
  }
  for (const Workload& workload : Workloads()) {
    const auto message = Configuration(workload, GetParam());
    const auto* worker = dynamic_cast<const config::WorkerConfig*>(message.get());
    if (worker == nullptr) continue;
    ASSERT_EQ(worker->routers_size(), 1);
    const std::string prefix = "dns:///";
    ASSERT_EQ(worker->routers(0).rfind(prefix, 0), 0u);
    EXPECT_EQ(worker_entrances[worker->routers(0).substr(prefix.size())], 1) << worker->routers(0);
  }
}

}  // namespace
}  // namespace baton
