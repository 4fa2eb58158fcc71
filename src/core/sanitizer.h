// Whether this is built with a sanitizer: GCC defines a macro for each, Clang answers questions.
// Nothing else belongs here.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QINFER_ADDRESS_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define QINFER_THREAD_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define QINFER_ADDRESS_SANITIZER 1
#endif
#if defined(__SANITIZE_THREAD__)
#define QINFER_THREAD_SANITIZER 1
#endif
