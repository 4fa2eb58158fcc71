// How many processors a Linux control group grants. Apart from DefaultThreads so that a test can
// point it at a made-up tree; nothing here knows about threads.
#pragma once

#include <cstdint>
#include <string>

namespace qinfer {

// `proc_self_cgroup`: the text of /proc/self/cgroup. `mount_root`: where control groups are mounted
// (/sys/fs/cgroup). The smallest quota from the process's own group up to the root, rounded up to
// whole processors; 0 = no limit found. Reads version 2 (cpu.max) and version 1 (cpu.cfs_quota_us).
uint32_t CgroupCpuLimit(const std::string& proc_self_cgroup, const std::string& mount_root);

}  // namespace qinfer
