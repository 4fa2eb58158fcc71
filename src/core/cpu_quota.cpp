// Counts the processors that this process may use: affinity mask and control-group quota. Starts no
// threads.
#include "core/cpu_quota.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "core/executor.h"

namespace qinfer {
namespace {

constexpr size_t kMaxSmallFile = 64 << 10;

// The contents of a small pseudo-file, or "" if it cannot be read.
std::string ReadSmallFile(const std::string& path) {
  std::string text;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char chunk[4096];
  while (text.size() < kMaxSmallFile) {
    const ssize_t n = read(fd, chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(chunk, static_cast<size_t>(n));
  }
  close(fd);
  return text;
}

bool ParseNumber(std::string_view text, int64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end != text.data();
}

uint32_t Processors(int64_t quota_us, int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0) return 0;
  const int64_t processors = (quota_us - 1) / period_us + 1;
  return static_cast<uint32_t>(std::min<int64_t>(processors, 1 << 20));
}

uint32_t QuotaV2(const std::string& folder) {
  const std::string text = ReadSmallFile(folder + "/cpu.max");  // "max 100000" or "150000 100000"
  const size_t space = text.find(' ');
  int64_t quota = 0, period = 0;
  if (space == std::string::npos || !ParseNumber(text, &quota) ||
      !ParseNumber(std::string_view(text).substr(space + 1), &period)) {
    return 0;
  }
  return Processors(quota, period);
}

uint32_t QuotaV1(const std::string& folder) {
  int64_t quota = 0, period = 0;
  if (!ParseNumber(ReadSmallFile(folder + "/cpu.cfs_quota_us"), &quota) ||
      !ParseNumber(ReadSmallFile(folder + "/cpu.cfs_period_us"), &period)) {
    return 0;
  }
  return Processors(quota, period);
}

bool ListHas(std::string_view list, std::string_view word) {
  for (size_t begin = 0; begin <= list.size();) {
    const size_t comma = std::min(list.find(',', begin), list.size());
    if (list.substr(begin, comma - begin) == word) return true;
    begin = comma + 1;
  }
  return false;
}

// The smallest quota of `group` and its ancestors below `mount`. A container often sees its own
// group as the root of the mount while /proc names the path outside, hence the walk to the top.
template <typename Quota>
uint32_t SmallestAbove(const std::string& mount, std::string group, Quota quota) {
  uint32_t smallest = 0;
  for (;;) {
    const uint32_t here = quota(mount + group);
    if (here != 0 && (smallest == 0 || here < smallest)) smallest = here;
    if (group.empty()) return smallest;
    const size_t slash = group.rfind('/');
    group.resize(slash == std::string::npos ? 0 : slash);
  }
}

}  // namespace

uint32_t CgroupCpuLimit(const std::string& proc_self_cgroup, const std::string& mount_root) {
  uint32_t limit = 0;
  const auto take = [&limit](uint32_t found) {
    if (found != 0 && (limit == 0 || found < limit)) limit = found;
  };
  const std::string_view text = proc_self_cgroup;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);  // "ID:controllers:/path"
    begin = end + 1;
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    std::string group(line.substr(second + 1));
    if (group == "/" || group.find("/..") != std::string::npos) group.clear();
    if (controllers.empty()) {
      take(SmallestAbove(mount_root, group, QuotaV2));
    } else if (ListHas(controllers, "cpu")) {
      take(SmallestAbove(mount_root + "/" + std::string(controllers), group, QuotaV1));
      take(SmallestAbove(mount_root + "/cpu", group, QuotaV1));
    }
  }
  return limit;
}

uint32_t DefaultThreads() {
  uint32_t allowed = 0;
  // The mask's size is the kernel's, which may be above 1024 processors.
  for (int capacity = 1024; capacity <= (1 << 20) && allowed == 0; capacity *= 4) {
    cpu_set_t* mask = CPU_ALLOC(capacity);
    if (mask == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, mask);
    const bool read = sched_getaffinity(0, bytes, mask) == 0;
    if (read) allowed = static_cast<uint32_t>(CPU_COUNT_S(bytes, mask));
    const bool too_small = !read && errno == EINVAL;
    CPU_FREE(mask);
    if (!too_small) break;
  }
  if (allowed == 0) {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    allowed = online > 0 ? static_cast<uint32_t>(online) : 1;
  }
  const uint32_t quota = CgroupCpuLimit(ReadSmallFile("/proc/self/cgroup"), "/sys/fs/cgroup");
  if (quota != 0) allowed = std::min(allowed, quota);
  return std::max<uint32_t>(allowed, 1);
}

}  // namespace qinfer
