// The entry of every GoogleTest program: exit code 77, which ctest counts as skipped, where a test
// was skipped and none has failed.
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) return failed;
  return testing::UnitTest::GetInstance()->skipped_test_count() > 0 ? 77 : 0;
}
