// Which table SelectTable gives: the best that the processor has, the one asked for, or none.
#include <string>

#include "testing.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace qinfer::kernels {
namespace {

TEST(Dispatch, GivesTheTableThatWasAskedForOrNone) {
  EXPECT_STREQ(SelectTable(Isa::kRef)->name, "ref");
  ASSERT_NE(SelectTable(Isa::kAuto), nullptr);
#if defined(__aarch64__)
  // HWCAP_ASIMDDP
  const bool dotprod = (getauxval(AT_HWCAP) & (1ul << 20)) != 0;
  ASSERT_NE(SelectTable(Isa::kNeon), nullptr);
  EXPECT_STREQ(SelectTable(Isa::kNeon)->name, dotprod ? "neon-dotprod" : "neon");
  EXPECT_EQ(SelectTable(Isa::kAuto), SelectTable(Isa::kNeon));
  EXPECT_EQ(SelectTable(Isa::kAvx2), nullptr);
  EXPECT_EQ(SelectTable(Isa::kAvxVnni), nullptr);
  EXPECT_EQ(SelectTable(Isa::kAvx512), nullptr);
#else
  EXPECT_EQ(SelectTable(Isa::kNeon), nullptr);
  const Table* avx2 = SelectTable(Isa::kAvx2);
  const Table* avxvnni = SelectTable(Isa::kAvxVnni);
  const Table* avx512 = SelectTable(Isa::kAvx512);
  if (avx2 != nullptr) {
    EXPECT_STREQ(avx2->name, "avx2");
  }
  if (avxvnni != nullptr) {
    EXPECT_STREQ(avxvnni->name, "avxvnni");
    EXPECT_NE(avx2, nullptr);
  }
#if defined(__x86_64__)
  uint32_t a = 0, b, c, d;
  const bool listed = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1u << 4) != 0;
  EXPECT_EQ(avxvnni != nullptr, listed && avx2 != nullptr && HasKernels(Isa::kAvxVnni));
#endif
  if (avx512 != nullptr) {
    EXPECT_STREQ(avx512->name, "avx512");
  }
  EXPECT_EQ(SelectTable(Isa::kAuto), avx512 != nullptr    ? avx512
                                     : avxvnni != nullptr ? avxvnni
                                     : avx2 != nullptr    ? avx2
                                                          : SelectTable(Isa::kRef));
#endif
}

TEST(Dispatch, WhatIsSelectedIsInTheBuild) {
  EXPECT_TRUE(HasKernels(Isa::kRef));
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512, Isa::kNeon})
    if (SelectTable(isa) != nullptr) {
      EXPECT_TRUE(HasKernels(isa)) << SelectTable(isa)->name;
    }
#if defined(__aarch64__)
  EXPECT_FALSE(HasKernels(Isa::kAvx2) || HasKernels(Isa::kAvxVnni) || HasKernels(Isa::kAvx512));
#else
  EXPECT_FALSE(HasKernels(Isa::kNeon));
#endif
}

TEST(Dispatch, TablesAreComplete) {
  for (const Table* table : TablesUnderTest()) {
    // A table is a name and functions: none of its pointers may be null.
    const void* const* pointers = reinterpret_cast<const void* const*>(table);
    for (size_t i = 0; i < sizeof(Table) / sizeof(void*); ++i)
      EXPECT_NE(pointers[i], nullptr) << table->name << " " << i;
  }
}

}  // namespace
}  // namespace qinfer::kernels
