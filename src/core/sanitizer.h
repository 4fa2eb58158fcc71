// Whether this is built with the address sanitizer: GCC defines a macro for it, Clang answers a
// question. Nothing else belongs here.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define QINFER_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QINFER_ADDRESS_SANITIZER 1
#endif
#endif
