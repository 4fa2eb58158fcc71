/* What the test programs count of their own process. */
#ifndef QINFER_TESTS_API_PROCESS_H
#define QINFER_TESTS_API_PROCESS_H

int thread_count(void);
int descriptor_count(void); /* open files */
/* Whether there are `wanted` threads, once those that were joined have left, which may take them a
 * moment. */
int threads_settle(int wanted);

#endif
