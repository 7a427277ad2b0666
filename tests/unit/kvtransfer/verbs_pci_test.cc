#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvtransfer/verbs/pci_distance.h"
#include "kvtransfer/verbs/rail_choice.h"
#include "tests/unit/kvtransfer/fake_verbs.h"

// The distance of RDMA devices to a GPU, and the rails that follow from it, in an imaginary sysfs.
namespace baton {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kGpu = "0000:1b:00.0";

class PciTest : public testing::Test {
 protected:
  PciTest() : sysfs_(fs::path(testing::TempDir()) / fmt::format("sysfs-{}", ::getpid())) {
    fs::remove_all(sysfs_);
    // A GPU below a switch: root port 15:01.0, upstream port 16, downstream port 17:00.0.
    Add("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:1b:00.0", 0, {}, kGpu);
  }
  ~PciTest() override { fs::remove_all(sysfs_); }

  // A PCI device at this path; with `rdma`, an RDMA device of that name.
  void Add(const std::string& path,
           int node,
           const std::string& rdma,
           const std::string& pci = {}) {
    const fs::path device = sysfs_ / "devices" / path;
    fs::create_directories(device);
    std::ofstream(device / "numa_node") << node << '\n';
    if (!pci.empty()) Link("bus/pci/devices/" + pci, device);
    if (rdma.empty()) return;
    fs::create_directories(sysfs_ / "class/infiniband" / rdma);
    Link("class/infiniband/" + rdma + "/device", device);
    AddVerbs(rdma);
  }
  void AddVerbs(const std::string& name) {
    verbs_.devices.push_back(
        {name,
         true,
         IBV_LINK_LAYER_ETHERNET,
         {FakeVerbs::GidEntry(IBV_GID_TYPE_ROCE_V2,
                              {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1})}});
  }
  void Link(const std::string& link, const fs::path& to) {
    fs::create_directories((sysfs_ / link).parent_path());
    fs::create_directory_symlink(to, sysfs_ / link);
  }
  PciDistance To(const std::string& rdma) {
    return DistanceBetween(PciDevicePath(sysfs_, kGpu), RdmaDevicePath(sysfs_, rdma));
  }
  // The names of the rails that are chosen for the GPU.
  std::vector<std::string> Chosen() {
    const auto rails =
        OpenRails(verbs_.library(), options_, {kGpu, sysfs_}, [this](auto line) { log_ += line; });
    std::vector<std::string> names;
    if (!rails.ok()) return {std::string(Message(rails.status()))};
    for (const auto& rail : *rails) {
      names.push_back(rail->ToString().substr(0, rail->ToString().find(' ')));
    }
    return names;
  }

  const fs::path sysfs_;
  FakeVerbs verbs_;
  VerbsOptions options_;
  std::string log_;
};

TEST_F(PciTest, DistancesGrowFromTheSwitchToTheOtherSocket) {
  Add("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1a:00.0", 0, "same_switch");
  Add("pci0000:15/0000:15:02.0/0000:1d:00.0", 0, "same_root");
  Add("pci0000:37/0000:37:01.0/0000:38:00.0", 0, "same_node");
  Add("pci0000:97/0000:97:01.0/0000:98:00.0", 1, "other_node");
  EXPECT_EQ(To("same_switch"), (PciDistance{PciMeeting::kSwitch, 4}));
  EXPECT_EQ(To("same_root"), (PciDistance{PciMeeting::kRootComplex, 6}));
  EXPECT_EQ(To("same_node"), (PciDistance{PciMeeting::kNumaNode, 0}));
  EXPECT_EQ(To("other_node"), (PciDistance{PciMeeting::kHost, 0}));
  EXPECT_EQ(To("soft0"), PciDistance{});
  const std::vector<std::string> names = {
      "same_switch", "same_root", "same_node", "other_node", "soft0"};
  for (size_t i = 1; i < names.size(); ++i) EXPECT_LT(To(names[i - 1]), To(names[i])) << names[i];
}

TEST_F(PciTest, AnUnknownNumaNodeIsNotTheSameNode) {
  Add("pci0000:15/0000:15:03.0/0000:1e:00.0", -1, {}, "0000:1e:00.0");
  Add("pci0000:37/0000:37:01.0/0000:38:00.0", -1, "nic");
  EXPECT_EQ(DistanceBetween(PciDevicePath(sysfs_, "0000:1e:00.0"), RdmaDevicePath(sysfs_, "nic")),
            (PciDistance{PciMeeting::kHost, 0}));
}

TEST_F(PciTest, TheNearestDevicesAreTakenInTheOrderOfTheirAddresses) {
  Add("pci0000:97/0000:97:01.0/0000:98:00.0", 1, "mlx5_0");
  Add("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1c:00.0", 0, "mlx5_1");
  Add("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1a:00.0", 0, "mlx5_2");
  EXPECT_THAT(Chosen(), ElementsAre("mlx5_2", "mlx5_1"));
  EXPECT_THAT(log_,
              HasSubstr("the nearest to the GPU 0000:1b:00.0, 4 PCIe hops below one root port"));
}

TEST_F(PciTest, ADeviceThatIsDownIsPassedOver) {
  Add("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1a:00.0", 0, "mlx5_0");
  verbs_.devices.back().is_active = false;
  Add("pci0000:97/0000:97:01.0/0000:98:00.0", 1, "mlx5_1");
  EXPECT_THAT(Chosen(), ElementsAre("mlx5_1"));
  verbs_.devices.back().is_active = false;
  EXPECT_THAT(Chosen()[0], HasSubstr("port 1 of RDMA device mlx5_0 is not active"));
}

TEST_F(PciTest, NamedDevicesAreTakenWhateverTheirDistance) {
  Add("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1a:00.0", 0, "mlx5_0");
  Add("pci0000:97/0000:97:01.0/0000:98:00.0", 1, "mlx5_1");
  options_.devices = {"mlx5_1"};
  EXPECT_THAT(Chosen(), ElementsAre("mlx5_1"));
}

TEST_F(PciTest, OfDevicesAtUnknownDistancesOneIsTaken) {
  AddVerbs("soft0");
  AddVerbs("soft1");
  EXPECT_THAT(Chosen(), ElementsAre("soft0"));
}

}  // namespace
}  // namespace baton
